package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
)

// restartAfter is how long a server that has ended stays away: time to see that nodes go on deciding without it.
const restartAfter = 10 * time.Second

// keepServers prints which servers end and starts each again after restartAfter, until ctx ends. The function that it
// returns waits for that.
func keepServers(ctx context.Context, w io.Writer, servers []stack.Server) (wait func()) {
	var keeping sync.WaitGroup
	for _, s := range servers {
		keeping.Go(func() { keepServer(ctx, w, s) })
	}
	return keeping.Wait
}

func keepServer(ctx context.Context, w io.Writer, s stack.Server) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Exited():
		}
		_, _ = fmt.Fprintf(w, "\n%s has ended. %s It starts again in %v.\n", s.Name, s.Without, restartAfter)
		if !restarted(ctx, w, s) {
			return
		}
		_, _ = fmt.Fprintf(w, "\n%s runs again.\n", s.Name)
	}
}

// restarted starts a server, again and again until it runs. It returns false if ctx ends first.
func restarted(ctx context.Context, w io.Writer, s stack.Server) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(restartAfter):
		}
		err := s.Restart(ctx)
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		_, _ = fmt.Fprintf(w, "\n%s does not start, and is tried again in %v: %v\n", s.Name, restartAfter, err)
	}
}
