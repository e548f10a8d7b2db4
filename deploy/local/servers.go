package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// restartPause is how long a server that has ended stays away: long enough to see that decisions go on without it.
const restartPause = 10 * time.Second

// server is a process that is started again when it has ended.
type server interface {
	Exited() <-chan struct{} // of the run that goes on now
	Restart(ctx context.Context) error
}

// keepServers starts each server again, restartPause after it has ended, and prints both, until ctx ends. The function
// that it returns waits for that.
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
		text := name + " has ended: decisions go on without it."
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
				_, _ = fmt.Fprintf(w, "%s does not start, which is tried again in %v: %v\n", name, restartPause, err)
			default:
				_, _ = fmt.Fprintf(w, "%s answers again.\n", name)
				ended = false
			}
		}
	}
}
