// Command weirctl shows and operates a Weir fleet through the API of weir-control. See --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], terminal{
		stdin: os.Stdin, interactive: isTerminal(os.Stdin), stdout: os.Stdout, stderr: os.Stderr,
	}))
}
