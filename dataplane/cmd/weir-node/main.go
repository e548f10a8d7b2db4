// Weir-node is a node of the data plane as a server: see package nodecmd.
package main

import (
	"context"
	"os"

	"github.com/weirhq/weir/dataplane/node/nodecmd"
)

func main() { os.Exit(nodecmd.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }
