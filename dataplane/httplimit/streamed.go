package httplimit

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/streamed"
)

// Streamed meters answers that are streamed: a handler reports their cost as it writes them. All fields are constant
// once it is used.
type Streamed struct {
	Streams *streamed.Streams // required

	// Reserve returns the most that the answer to a request may cost. It may read the request's body, and must then put it
	// back for the handler. A request for which it returns an error is rejected with 400, and the error as the reason.
	// Required.
	Reserve func(*http.Request) (dataplane.ReserveRequest, error)
}

// Handler reserves before it calls next, and settles when next returns, also if it panics. next must report its cost to
// streamed.MeterOf(r.Context()). A request that does not pass is answered with 429 and Retry-After, or with 503 if the
// limiter cannot decide or has no room.
func (s *Streamed) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := s.Reserve(r)
		if err != nil {
			writeProblem(w, Problem{Type: "about:blank", Status: http.StatusBadRequest, Detail: err.Error()})
			return
		}
		meter, got := s.Streams.Begin(r.Context(), request)
		if meter == nil {
			refuseReservation(w, &got)
			return
		}
		defer meter.End()
		next.ServeHTTP(w, r.WithContext(streamed.With(r.Context(), meter)))
	})
}

// RetryReserved returns how long to wait until the same would be reserved, if waiting helps.
func RetryReserved(got *dataplane.Reserved) (wait time.Duration, helps bool) {
	for i := range got.Decisions {
		d := &got.Decisions[i]
		if d.NeverPasses {
			return 0, false
		}
		wait = max(wait, d.RetryAfter)
	}
	return max(wait, time.Second), true
}

// refuseReservation answers a request for which nothing was reserved.
func refuseReservation(w http.ResponseWriter, got *dataplane.Reserved) {
	p := Problem{Type: TypeQuotaExceeded, Title: "Quota exceeded", Status: http.StatusTooManyRequests,
		Detail: "the quota is used up, or reserved by requests that are under way"}
	wait, helps := RetryReserved(got)
	switch {
	case errors.Is(got.Err, dataplane.ErrInvalid):
		p = Problem{Type: "about:blank", Status: http.StatusInternalServerError, Detail: "the limit could not be applied"}
		helps = false
	case got.Err != nil || DegradedReserved(got):
		p = Problem{Type: TypeTemporaryReducedCapacity, Status: http.StatusServiceUnavailable,
			Detail: "the limiter cannot decide about this request at the moment"}
	case !helps:
		p.Detail = "the request may cost more than its limit"
	}
	if helps {
		w.Header().Set(fieldRetryAfter, strconv.FormatInt(Seconds(wait), 10))
	}
	writeProblem(w, p)
}

// DegradedReserved reports whether an outage policy decided.
func DegradedReserved(got *dataplane.Reserved) bool {
	for i := range got.Decisions {
		if got.Decisions[i].Source == dataplane.SourceDegradedClosed {
			return true
		}
	}
	return false
}
