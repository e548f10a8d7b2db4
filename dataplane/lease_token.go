package dataplane

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/store"
)

// LeaseIDBytesMax is how long a holder's id for a lease may be.
const LeaseIDBytesMax = store.LeaseIDBytesMax

// LeaseTokensMax is how many leases a RenewTokens or ReleaseTokens is about at most.
const LeaseTokensMax = 100

// AcquireToken is Acquire, or with wait set AcquireWait, for a holder outside this process. The token is the lease as
// text: any node of the region renews and releases it, and it outlives this one. It ends the decision's TTL after it
// was asked for, or as long after it was renewed last, counted from before the call. The token is "" where no slot is
// held.
//
// Calls with the same id, for the same key and at any node, have one lease. Without an id one is drawn. Do not use the
// id of a released lease again: a release may arrive late. The id renews and releases, so it should be hard to guess.
//
// It asks the origin, except without an id in the 20 ms after the origin has refused the key to this node. Without the
// origin's answer the outage policy decides as for Acquire; a lease that this node grants then is renewed and released
// at this node alone.
func (l *Limiter) AcquireToken(ctx context.Context, r ConcurrencyRequest, id string,
	wait bool) (token string, d ConcurrencyDecision) {
	var ask slots.Ask
	by := l.prepareLease(&r, &ask, &d)
	switch {
	case by == nil:
		return "", d
	case len(id) > LeaseIDBytesMax:
		d.Err = fmt.Errorf("%w: id is %d bytes long (1 to %d)", ErrInvalid, len(id), LeaseIDBytesMax)
		return "", d
	}
	drawn := id == ""
	if drawn {
		id = cryptorand.Text()
	}
	of := leases.Ask{Limit: ask.Limit, Drawn: drawn, OutEnds: ask.OutEnds, Local: by.outage == outageLocal,
		Lease: leases.Lease{Key: ask.Name, ID: id, TTL: ask.TTL, SinceMs: l.nowMs(), Holder: ask.Holder}}
	began := time.Now()
	result := l.leases.Acquire(ctx, &of, wait && !by.shadow)
	if l.answerLease(&d, &ask, &result, by); result.Granted {
		token, d.TTL = of.Lease.Token(), of.Sent.Sub(began)+ask.TTL
	}
	return token, d
}

// RenewTokens has up to LeaseTokensMax leases end ttl from now, or when they would if that is later: LeaseTTLMin to
// LeaseTTLMax, 0 for what each was acquired with. It returns what became of each: nil, ErrLeaseLost for one that has
// ended, an error that wraps ErrInvalid for what is no token, and any other, such as ErrStopped, where the origin has
// not answered: the
// lease is as it was. A lease that has ended by its holder's clock stays ended, whatever a later call answers: an
// origin that was emptied believes what holders say.
func (l *Limiter) RenewTokens(ctx context.Context, ttl time.Duration, tokens ...string) []error {
	return leases.Each(tokens, LeaseTokensMax, func(of []leases.Lease) []error {
		if err := checkTTL(cmp.Or(ttl, LeaseTTLMin), LeaseTTLMin, LeaseTTLMax); err != nil {
			return slices.Repeat([]error{err}, len(of))
		}
		return l.leases.Renew(ctx, of, ttl)
	})
}

// ReleaseTokens ends up to LeaseTokensMax leases. One that has ended is no error.
func (l *Limiter) ReleaseTokens(ctx context.Context, tokens ...string) []error {
	return leases.Each(tokens, LeaseTokensMax, func(of []leases.Lease) []error { return l.leases.Release(ctx, of) })
}
