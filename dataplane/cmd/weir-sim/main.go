// Weir-sim runs regions of real limiters in virtual time: see package sim.
package main

import (
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
