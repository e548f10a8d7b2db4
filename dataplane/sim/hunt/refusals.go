package hunt

import (
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
)

var errRefused = errors.New("hunt: the server refuses calls of this kind")

// refusals has the calls that a server refuses now. Each part may refuse other calls.
type refusals struct {
	mu sync.Mutex
	by map[refusedCall]refused
}

type refusedCall struct {
	part int // of an origin, from 0 on
	op   memstore.Op
}

// refused counts the faults that refuse a call, and has the time since which there is any.
type refused struct {
	faults int
	since  time.Time
}

// change begins or ends a fault in which some parts refuse calls.
func (r *refusals) change(parts []int, ops []memstore.Op, faults int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = make(map[refusedCall]refused)
	}
	for _, part := range parts {
		for _, op := range ops {
			call := refusedCall{part, op}
			is := r.by[call]
			if is.faults == 0 {
				is.since = time.Now()
			}
			is.faults += faults
			r.by[call] = is
		}
	}
}

// refusedFor returns for how long a call has been refused without a pause, 0 if it is not.
func (r *refusals) refusedFor(part int, op memstore.Op) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is := r.by[refusedCall{part, op}]; is.faults > 0 {
		return time.Since(is.since)
	}
	return 0
}

// hook refuses calls to a part. failed is called for each.
func (r *refusals) hook(part int, failed func()) func(memstore.Op) error {
	return func(op memstore.Op) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.by[refusedCall{part, op}].faults == 0 {
			return nil
		}
		failed()
		return errRefused
	}
}

// fault makes some parts refuse calls for a time.
func (r *refusals) fault(parts []int, ops []memstore.Op) (begin, end func()) {
	return func() { r.change(parts, ops, 1) }, func() { r.change(parts, ops, -1) }
}
