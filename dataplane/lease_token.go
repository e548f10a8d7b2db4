package dataplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

// AcquireToken is Acquire for a holder outside this process; with wait set, it is AcquireWait. The token is the lease
// as text. Any node of the region can renew and release it, also after this node has stopped. The lease ends the
// decision's TTL after AcquireToken was called, or after its last renewal. The token is "" if the lease holds no
// slot.
//
// Calls with the same id for the same key share one lease, at any node of the region. If id is empty, AcquireToken
// draws a random id. Do not use the id of a released lease again, because a release may arrive late. Anyone who has
// the id can renew and release the lease, so it should be hard to guess.
//
// AcquireToken calls the origin each time, and waits for each reply for at most Config.ReadTimeout, or until ctx ends.
// A call that has begun goes on. There is one exception: without an id, it denies at once for 20 ms after the origin
// has denied the key to this node. If the origin does not answer, the outage policy decides as for Acquire. A lease
// that this node then grants can be renewed and released only at this node. If the call cannot begin in time because
// this node already makes the highest number of calls at once, AcquireToken denies with ErrBusy, whatever the outage
// policy.
func (l *Limiter) AcquireToken(ctx context.Context, r ConcurrencyRequest, id string,
	wait bool) (token string, d ConcurrencyDecision) {
	var ask slots.Ask
	if ctx, d.Err = l.called(ctx); d.Err != nil {
		return "", d
	}
	switch d.Err = r.prepare(&ask); {
	case d.Err != nil:
		return "", d
	case len(id) > LeaseIDBytesMax:
		d.Err = fmt.Errorf("%w: id is %d bytes long (1 to %d)", ErrInvalid, len(id), LeaseIDBytesMax)
		return "", d
	}
	token, lasts, by, result := l.permits.Leases.AcquireToken(ctx, &ask, id, wait)
	d.take(&result, &ask, by)
	d.TTL = lasts
	return token, d
}

// RenewTokens extends up to LeaseTokensMax leases to ttl from now; it never shortens a lease. ttl is LeaseTTLMin to
// LeaseTTLMax, or 0 for the TTL with which each lease was acquired. It returns one error per token:
//
//   - nil: the lease was renewed.
//   - ErrLeaseLost: the lease has ended.
//   - an error that wraps ErrInvalid: the text is not a token.
//   - any other error, such as ErrBusy or ErrStopped: the origin has not answered within Config.ReadTimeout, or
//     before ctx ended. The lease may have been renewed all the same.
//
// If a lease has ended by its holder's own clock, the holder must treat it as ended even if a later call renews it.
// The reason is that an origin that has lost its data accepts leases that it no longer has, unless this node
// remembers that they were released or lost.
func (l *Limiter) RenewTokens(ctx context.Context, ttl time.Duration, tokens ...string) []error {
	ctx, zero := l.called(ctx)
	return leases.Each(tokens, LeaseTokensMax, func(of []leases.Lease) []error {
		if zero != nil {
			return slices.Repeat([]error{zero}, len(of))
		}
		if err := checkTTL(cmp.Or(ttl, LeaseTTLMin), LeaseTTLMin, LeaseTTLMax); err != nil {
			return slices.Repeat([]error{err}, len(of))
		}
		return l.permits.Leases.Renew(ctx, of, ttl)
	})
}

// ReleaseTokens ends up to LeaseTokensMax leases. A lease that has ended is no error. ReleaseTokens waits as
// RenewTokens does. If it returns an error for a lease, the lease may have been released all the same.
func (l *Limiter) ReleaseTokens(ctx context.Context, tokens ...string) []error {
	ctx, zero := l.called(ctx)
	return leases.Each(tokens, LeaseTokensMax, func(of []leases.Lease) []error {
		if zero != nil {
			return slices.Repeat([]error{zero}, len(of))
		}
		return l.permits.Leases.Release(ctx, of)
	})
}
