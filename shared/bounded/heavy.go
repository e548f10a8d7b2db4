package bounded

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"
)

// LightBytes is the longest body that costs so little that it needs no place among the heavy
// ones.
const LightBytes = 64 << 10

// heavyWaitMax bounds how long a heavy body waits for its place before it is shed.
const heavyWaitMax = 2 * time.Second

// heavy are the places of long bodies that are unpacked, decoded and answered: a few for each
// processor, so that short ones, and probes, do not queue behind milliseconds of decoding, and
// so that few long bodies exist in more than one form.
var heavy = semaphore.NewWeighted(int64(2 * runtime.GOMAXPROCS(0)))

// Place is a place among the heavy ones, or none yet.
type Place struct{ taken bool }

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

// Give gives the place back, if there is one.
func (p *Place) Give() {
	if p.taken {
		p.taken = false
		heavy.Release(1)
	}
}
