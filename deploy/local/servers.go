package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// restartPause is how long a server that has ended stays down: long enough to see that decisions
// continue without it.
const restartPause = 10 * time.Second

// server is a process that is restarted when it ends.
type server interface {
	Exited() <-chan struct{} // closed when the current run ends
	Restart(ctx context.Context) error
}

// keepServers restarts each server restartPause after it has ended, and prints when it ends and
// when it is back, until ctx ends. wait returns when keepServers has stopped.
func keepServers(ctx context.Context, w io.Writer, servers map[string]server) (wait func()) {
	var keeping sync.WaitGroup
	for name, s := range servers {
		keeping.Go(func() { keep(ctx, w, name, s) })
	}
	return keeping.Wait
}

func keep(ctx context.Context, w io.Writer, name string, s server) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Exited():
		}
		again := time.Now().Add(restartPause)
		text := name + " has ended: nodes still decide without it."
		if s, ok := s.(interface{ ended(context.Context) string }); ok {
			text = s.ended(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		_, _ = fmt.Fprintf(w, "\n%s It is started again in %v.\n", text, time.Until(again).Round(time.Second))
		for ended := true; ended; again = time.Now().Add(restartPause) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(again)):
			}
			err := s.Restart(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				_, _ = fmt.Fprintf(w, "%s does not start, next attempt in %v: %v\n", name, restartPause, err)
			default:
				_, _ = fmt.Fprintf(w, "%s answers again.\n", name)
				ended = false
			}
		}
	}
}
