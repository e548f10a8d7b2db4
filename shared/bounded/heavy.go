package bounded

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"
)

// LightBytes is the length up to which a body is so cheap that it needs no place.
const LightBytes = 64 << 10

// heavyWaitMax bounds how long a long body waits for its place before it is shed.
const heavyWaitMax = 2 * time.Second

// heavy has the places for long bodies in work: a place for every two processors. So short bodies and probes do not
// queue behind milliseconds of decoding, and few long bodies exist in more than one form.
var heavy = semaphore.NewWeighted(heavyMax)

var heavyMax = int64(max(1, runtime.GOMAXPROCS(0)/2))

// Place is a place for a long body, if it is taken. Give, Leave and Return do nothing for a nil Place.
type Place struct {
	taken bool
	left  bool // to be taken again by Return
}

type placeKey struct{}

// With stores the place in a context for PlaceOf, if it is taken.
func (p *Place) With(ctx context.Context) context.Context {
	if !p.taken {
		return ctx
	}
	return context.WithValue(ctx, placeKey{}, p)
}

// PlaceOf returns the place of a call, or nil if it has none.
func PlaceOf(ctx context.Context) *Place {
	place, _ := ctx.Value(placeKey{}).(*Place)
	return place
}

// For takes the place if a body of n bytes needs one.
func (p *Place) For(ctx context.Context, n int) error {
	if p.taken || n <= LightBytes || heavy.TryAcquire(1) {
		p.taken = p.taken || n > LightBytes
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, heavyWaitMax)
	defer cancel()
	if err := heavy.Acquire(patience, 1); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return refuse(BoundSlots, "too many bodies of more than %d bytes in flight on this server", LightBytes)
	}
	p.taken = true
	return nil
}

// Leave gives the place to others while the call waits. Callers must call Return after that.
func (p *Place) Leave() {
	if p != nil && p.taken {
		p.left = true
		p.Give()
	}
}

// Return takes the place again that Leave gave back. If ctx ends first, the call continues without a place, because its
// result must still be sent.
func (p *Place) Return(ctx context.Context) {
	if p != nil && p.left {
		p.left = false
		p.taken = heavy.Acquire(ctx, 1) == nil
	}
}

// Give gives the place back, if it is taken.
func (p *Place) Give() {
	if p != nil && p.taken {
		p.taken = false
		heavy.Release(1)
	}
}
