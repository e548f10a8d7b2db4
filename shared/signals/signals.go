// Package signals handles the signals of the operating system for programs that drain before they
// end.
package signals

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// Context returns a context that ends with parent, or with the first signal to end the program: SIGTERM, SIGINT, or, if
// the program has a terminal, SIGHUP, which the system sends when the terminal is closed. A second SIGTERM or SIGINT
// ends the process at once.
//
// Other signals that would end the process without a drain are only passed to ignored: SIGUSR1, SIGUSR2 and, without a
// terminal, SIGHUP, with which other servers reread their files. A signal that the process was started to ignore, for
// example by nohup, stays ignored.
//
// stop releases the signals and waits for the goroutine that receives them.
func Context(parent context.Context, ignored func(os.Signal)) (ctx context.Context, stop func()) {
	return contextWith(parent, ignored, hasTerminal())
}

func contextWith(parent context.Context, ignored func(os.Signal), terminal bool) (ctx context.Context, stop func()) {
	ends, others := []os.Signal{syscall.SIGTERM, syscall.SIGINT}, []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
	if terminal {
		ends = append(ends, syscall.SIGHUP)
	} else {
		others = append(others, syscall.SIGHUP)
	}
	ends, others = slices.DeleteFunc(ends, signal.Ignored), slices.DeleteFunc(others, signal.Ignored)
	ctx, release := context.WithCancel(parent)
	first := make(chan os.Signal, 1)
	if len(ends) > 0 { // without arguments, Notify would catch all signals
		signal.Notify(first, ends...)
	}
	rest := make(chan os.Signal, 8)
	if len(others) > 0 {
		signal.Notify(rest, others...)
	}
	stopped := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer signal.Stop(rest)
		done := ctx.Done()
		for {
			select {
			case <-first:
				release()
			case <-done:
				signal.Stop(first) // from now on, SIGTERM and SIGINT have their default effect
				done = nil
			case s := <-rest:
				ignored(s)
			case <-stopped:
				signal.Stop(first)
				return
			}
		}
	})
	return ctx, sync.OnceFunc(func() {
		release()
		close(stopped)
		running.Wait()
	})
}

// hasTerminal reports whether the process has a controlling terminal.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = tty.Close()
	return true
}
