package handlers

import (
	"context"
	"strings"
	"sync/atomic"
	"time"
)

// attemptTimeout is how long an address may take to answer before the client tries the next, because a dead machine
// does not even refuse a connection. A slow address does no harm: calls that must not happen twice carry an ID.
const attemptTimeout = 5 * time.Second

// addresses are the URLs of Restate: of a single server, or of the nodes of a cluster, any of which accepts any call.
// They are safe for concurrent use.
type addresses struct {
	urls   []string     // without a slash at the end
	latest atomic.Int64 // index of the URL that answered last, where the next call begins
}

func (a *addresses) set(urls []string) {
	for _, url := range urls {
		a.urls = append(a.urls, strings.TrimRight(url, "/"))
	}
}

func (a *addresses) String() string { return strings.Join(a.urls, ", ") }

// inTurn tries the addresses in turn until one answers, each at most once. The last attempt can take as long as ctx
// allows.
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
