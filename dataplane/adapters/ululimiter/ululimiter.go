// Package ululimiter makes a Weir limiter a Store of github.com/ulule/limiter/v3. Use it for code and middleware
// written for that package that should enforce a fleet's limits. The differences are in ../README.md.
package ululimiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ulule/limiter/v3"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// ErrReset is returned by Reset, which is not supported. Operators reset a key for the whole fleet: see weirctl reset.
var ErrReset = errors.New("ululimiter: Reset is not supported: an operator resets a key (weirctl reset)")

// Store is a limiter.Store. Make it with New. All methods are safe for concurrent use.
type Store struct {
	limiter   *dataplane.Limiter
	workspace string
	namespace string
}

var _ limiter.Store = (*Store)(nil)

// New makes a Store whose keys are in a namespace: 1 to 191 and 1 to 255 bytes. It neither starts nor stops the
// limiter. Errors wrap dataplane.ErrInvalid, and name the field and its bound.
func New(l *dataplane.Limiter, workspace, namespace string) (*Store, error) {
	if l == nil {
		return nil, fmt.Errorf("%w: limiter is nil", dataplane.ErrInvalid)
	}
	s := &Store{limiter: l, workspace: workspace, namespace: namespace}
	any := s.of("any", limiter.Rate{Period: time.Second}, 1)
	return s, any.Validate()
}

func (s *Store) of(key string, rate limiter.Rate, count int64) dataplane.Request {
	return dataplane.Request{Workspace: s.workspace, Namespace: s.namespace, Identifier: window.BoundIdentifier(key),
		Limit: rate.Limit, Duration: rate.Period, Cost: min(count, window.LimitMax), ZeroCost: count == 0}
}

// Get counts a request if it passes. A key may be any bytes. An empty key, or one longer than 255
// bytes, is counted under its SHA-256: the middleware panics on errors, and a caller may choose the
// key. A rate's period is 1 s to 366 days, in whole milliseconds.
func (s *Store) Get(ctx context.Context, key string, rate limiter.Rate) (limiter.Context, error) {
	return s.Increment(ctx, key, 1, rate)
}

// Increment counts count, all of it or nothing.
func (s *Store) Increment(ctx context.Context, key string, count int64, rate limiter.Rate) (limiter.Context, error) {
	return said(s.limiter.Allow(ctx, s.of(key, rate, count)))
}

// Peek returns the answer that Get would give, and counts nothing. Remaining is the budget before the request.
func (s *Store) Peek(ctx context.Context, key string, rate limiter.Rate) (limiter.Context, error) {
	d := s.limiter.Peek(ctx, s.of(key, rate, 1))
	c, err := said(d)
	if err == nil && d.Allowed {
		c.Remaining = s.limiter.Peek(ctx, s.of(key, rate, 0)).Remaining
	}
	return c, err
}

// Reset returns ErrReset.
func (s *Store) Reset(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, ErrReset
}

// said converts a decision into the Store's answer. Reset is in Unix seconds: the time at which a denied request would
// pass, or the end of the window's cell for an allowed request.
func said(d dataplane.Decision) (limiter.Context, error) {
	if d.Err != nil {
		return limiter.Context{}, d.Err
	}
	at := d.ResetAt
	if !d.Allowed && d.RetryAfter > 0 {
		at = time.Now().Add(d.RetryAfter + time.Second - 1) // to the full second, and not before
	}
	return limiter.Context{Limit: d.Limit, Remaining: d.Remaining, Reset: at.Unix(), Reached: !d.Allowed}, nil
}
