// Command weir-control is the control plane: the operators' API, the durable handlers
// that Restate calls, and what keeps both alive. See --help.
//
// It serves from its first moment, whatever is down: without Restate schedules stand
// still, without MySQL runs fail and are recorded as such, and both are taken up again
// without a restart. SIGTERM, or the hangup of its terminal, drains: calls of operators are finished, then the handlers
// that are under way, or at least the step that each is in; a second one ends at once.
// Exit codes: 0 after a drain, 1 on a failure, 2 when the configuration is wrong.
package main

import (
	"context"
	"os"

	"github.com/weirhq/weir/shared/signals"
)

func main() {
	ctx, _ := signals.Context(context.Background(), func(s os.Signal) {
		newLog(os.Stderr, "info").Info("ignored a signal: files that have changed are read again by themselves",
			"signal", s.String())
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
