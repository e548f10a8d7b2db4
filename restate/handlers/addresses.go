package handlers

import (
	"context"
	"strings"
	"sync/atomic"
	"time"
)

// attemptTimeout is how long one of several addresses may take over a call before the
// next is asked: a machine that is gone does not even refuse. One that is only slow
// loses nothing: what may not happen twice is sent so that it does not.
const attemptTimeout = 5 * time.Second

// addresses are where Restate is: of one server, or of the nodes of a cluster, any of
// which takes any call. Safe for use by several goroutines.
type addresses struct {
	urls   []string     // without a slash at the end
	latest atomic.Int64 // index of the one that answered last: the next call begins there
}

func (a *addresses) set(urls []string) {
	for _, url := range urls {
		a.urls = append(a.urls, strings.TrimRight(url, "/"))
	}
}

func (a *addresses) String() string { return strings.Join(a.urls, ", ") }

// inTurn makes a call at one address after the other until one has answered, each
// once. The last may take as long as ctx allows.
func (a *addresses) inTurn(ctx context.Context,
	call func(ctx context.Context, i int) (answered bool, err error)) error {
	first := int(a.latest.Load())
	for turn := 0; ; turn++ {
		i := (first + turn) % len(a.urls)
		last := turn == len(a.urls)-1
		answered, err := a.attempt(ctx, !last, i, call)
		if answered {
			a.latest.Store(int64(i))
		}
		if answered || last || ctx.Err() != nil {
			return err
		}
	}
}

func (a *addresses) attempt(ctx context.Context, bounded bool, i int,
	call func(context.Context, int) (bool, error)) (bool, error) {
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
	}
	return call(ctx, i)
}
