// Command weir-control is the control plane: it serves the operators' API and the durable handlers
// that Restate calls. See --help.
//
// It serves as soon as it starts, even if other servers are down. Without Restate, schedules stop.
// Without MySQL, runs fail and are recorded as failed. Both resume without a restart.
//
// SIGTERM, SIGINT or the hangup of its terminal starts a drain: weir-control finishes the
// operators' calls, and then the running handlers or at least the current step of each. A second
// SIGTERM or SIGINT ends it at once. The exit code is 0 after a drain, 1 after a failure, and 2 if
// the configuration is wrong.
package main

import (
	"context"
	"os"

	"github.com/weirhq/weir/shared/signals"
)

func main() {
	ctx, _ := signals.Context(context.Background(), func(s os.Signal) {
		newLog(os.Stderr, "info").Info("ignored a signal: weir-control reads changed files again by itself",
			"signal", s.String())
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
