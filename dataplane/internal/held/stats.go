package held

import (
	"errors"
	"sync/atomic"
)

// Stats count calls about reservations by their results. They only grow, and may be read at any time.
type Stats struct {
	Granted, Refused       atomic.Int64 // requests for new reservations
	Settled                atomic.Int64 // reservations, by Settle or Cancel
	Exceeded               atomic.Int64 // the part of Settled with more spent than reserved
	Late, Unknown, NoReply atomic.Int64 // calls that have changed nothing
}

// reserved counts the result of a request for a reservation. made is false if the reservation existed before.
func (s *Stats) reserved(made, ok bool, err error) {
	switch {
	case err != nil:
		if errors.As(err, new(Away)) {
			s.NoReply.Add(1)
		}
	case made:
		s.Granted.Add(1)
	case !ok:
		s.Refused.Add(1)
	}
}

// changed counts a change of a reservation.
func (s *Stats) changed(r *Record, stored bool) {
	switch {
	case !stored:
		s.Late.Add(1)
	case r.Settled:
		s.Settled.Add(1)
		for i := range r.Items {
			if it := &r.Items[i]; it.Spent > it.Held {
				s.Exceeded.Add(1)
				return
			}
		}
	}
}
