package permits

import (
	"context"
	"sync"
)

// flights are the requests for reservations that are under way. Requests with the same ID are decided in sequence,
// whichever of the two origins decides: otherwise the region's origin could answer a request while this process decides
// about another, and both would reserve. For example, as an outage begins, the answer of the first request is lost, so
// this process reserves. The second request waits meanwhile, and then finds that reservation.
//
// The zero value is ready to use. All methods may be called concurrently.
type flights struct {
	mu sync.Mutex
	by map[string]*flight // by ID
}

// flight is a request that is under way.
type flight struct {
	judge Judge
	out   bool          // the region's origin has not answered; read it after the flight
	over  chan struct{} // closed at the end; nil if no request waits for it
}

// begin registers a request until end is called. If another request with the ID is under way, begin first waits for its
// end, or returns the error of ctx. before is the last request that it waited for, nil if there was none.
func (f *flights) begin(ctx context.Context, id string, judge Judge) (own, before *flight, err error) {
	own = &flight{judge: judge}
	for {
		f.mu.Lock()
		other := f.by[id]
		if other == nil {
			if f.by == nil {
				f.by = make(map[string]*flight)
			}
			f.by[id] = own
			f.mu.Unlock()
			return own, before, nil
		}
		if other.over == nil {
			other.over = make(chan struct{})
		}
		over := other.over
		f.mu.Unlock()
		select {
		case <-over:
			before = other
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// end ends a request.
func (f *flights) end(id string, own *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.by, id); own.over != nil {
		close(own.over)
	}
}

// judge returns the judge of the request with the ID that is under way, nil if there is none. out reports whether the
// region's origin has failed to answer the request.
func (f *flights) judge(id string) (judge Judge, out bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if own := f.by[id]; own != nil {
		return own.judge, own.out
	}
	return nil, false
}
