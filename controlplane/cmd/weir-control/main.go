// Command weir-control is the control plane: the operators' API, the durable handlers
// that Restate calls, and what keeps both alive. See --help.
//
// It serves from its first moment, whatever is down: without Restate schedules stand
// still, without MySQL runs fail and are recorded as such, and both are taken up again
// without a restart. SIGTERM drains: calls of operators are finished, then the handlers
// that are under way, or at least the step that each is in; a second one ends at once.
// Exit codes: 0 after a drain, 1 on a failure, 2 when the configuration is wrong.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on a signal does what it does by default
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
