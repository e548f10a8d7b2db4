// Package golimiter makes a Weir limiter a Store of github.com/sethvargo/go-limiter. Use it for code and middleware
// written for go-limiter that should enforce a fleet's limits. The differences are in ../README.md.
package golimiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	limiter "github.com/sethvargo/go-limiter"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// ErrSet is returned by Set, which is not supported. Limits of single keys are overrides, which operators set for the
// whole fleet: for example, weirctl override set.
var ErrSet = errors.New("golimiter: Set is not supported: an override gives a key its own limit (weirctl override set)")

// Config sets the keys and the limit of a Store.
type Config struct {
	Limiter              *dataplane.Limiter // required; the Store neither starts nor stops it
	Workspace, Namespace string             // of its keys: 1 to 191 and 1 to 255 bytes

	Tokens   uint64        // of each key in an interval, 0 to window.LimitMax; 0 is 1, as in go-limiter's own stores
	Interval time.Duration // 1 s to 366 days, whole milliseconds; 0 is 1 s
}

// Store is a limiter.Store. Make it with New. All methods are safe for concurrent use.
type Store struct {
	limiter *dataplane.Limiter
	request dataplane.Request // without an identifier
	closed  atomic.Bool
}

var _ limiter.Store = (*Store)(nil)

// New makes a Store. Errors wrap dataplane.ErrInvalid, and name the field and its bound.
func New(c Config) (*Store, error) {
	if c.Limiter == nil {
		return nil, fmt.Errorf("%w: Limiter is nil", dataplane.ErrInvalid)
	}
	if c.Tokens == 0 {
		c.Tokens = 1
	}
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	s := &Store{limiter: c.Limiter, request: dataplane.Request{
		Workspace: c.Workspace, Namespace: c.Namespace, Limit: amount(c.Tokens), Duration: c.Interval,
	}}
	any := s.of("any")
	return s, any.Validate()
}

// amount converts tokens into a limit or a cost. Numbers that do not fit an int64 become its maximum, which is out of
// bounds.
func amount(tokens uint64) int64 { return int64(min(tokens, math.MaxInt64)) }

func (s *Store) of(key string) dataplane.Request {
	r := s.request
	r.Identifier = window.BoundIdentifier(key)
	return r
}

// Take takes a token for a key. reset is in Unix nanoseconds: the time at which a denied request
// would pass, or the end of the window's cell for an allowed one. A key may be any bytes. An empty
// key, or one longer than 255 bytes, is counted under its SHA-256 instead of returning an error,
// because a caller may choose it.
func (s *Store) Take(ctx context.Context, key string) (tokens, remaining, reset uint64, ok bool, err error) {
	if s.closed.Load() {
		return 0, 0, 0, false, limiter.ErrStopped
	}
	d := s.limiter.Allow(ctx, s.of(key))
	if d.Err != nil {
		return 0, 0, 0, false, d.Err
	}
	at := d.ResetAt
	if !d.Allowed && d.RetryAfter > 0 {
		at = time.Now().Add(d.RetryAfter)
	}
	return uint64(d.Limit), uint64(d.Remaining), uint64(max(0, at.UnixNano())), d.Allowed, nil
}

// Get returns the limit of a key, and how many tokens are left. It takes none.
func (s *Store) Get(ctx context.Context, key string) (tokens, remaining uint64, err error) {
	if s.closed.Load() {
		return 0, 0, limiter.ErrStopped
	}
	r := s.of(key)
	r.ZeroCost = true
	d := s.limiter.Peek(ctx, r)
	return uint64(d.Limit), uint64(d.Remaining), d.Err
}

// Set returns ErrSet.
func (s *Store) Set(context.Context, string, uint64, time.Duration) error { return ErrSet }

// Burst gives back tokens that were taken in the current cell of the key, at most as many as that holds: more than its
// limit a key never has.
func (s *Store) Burst(_ context.Context, key string, tokens uint64) error {
	if s.closed.Load() {
		return limiter.ErrStopped
	}
	r := s.of(key)
	r.Cost, r.ZeroCost = amount(tokens), tokens == 0
	_, err := s.limiter.Refund(r)
	return err
}

// Close stops the Store, and not its Limiter.
func (s *Store) Close(context.Context) error {
	s.closed.Store(true)
	return nil
}
