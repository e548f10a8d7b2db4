package handlers

import (
	"fmt"
	"net/http"
	"time"
)

// limits are what callers of the handlers' port can make it keep. Restate signs its requests where an
// identity key is set, and the SDK checks that by the headers, before it reads a body; without one the
// port is on loopback, where every process of the machine may call.
type limits struct {
	connections  int
	journalBytes int64         // of one request: the journal and state of an invocation, some hundred kB at the most
	allBytes     int64         // of all requests together
	arriving     int           // requests whose journal is not there yet; a further one has the oldest cut off
	arrival      time.Duration // until a journal is there
	invocations  int           // at once; jobs, rollouts and retirements are some dozens
	attempt      time.Duration // after that the input ends: the invocation is suspended, and goes on in another attempt
}

var usual = limits{
	connections:  1024,
	journalBytes: 64 << 20,
	allBytes:     256 << 20,
	arriving:     64,
	arrival:      15 * time.Second,
	invocations:  256,
	attempt:      time.Hour,
}

// The same for what a connection keeps beside its requests.
const (
	idleTimeout    = 2 * time.Minute
	headerBytesMax = 64 << 10
	streamsMax     = 256              // of a connection: Restate sends all invocations over one
	pingAfter      = 30 * time.Second // of silence: a peer that is gone gives its invocations back
	pingTimeout    = 15 * time.Second
	writeStalled   = 30 * time.Second
	stepMax        = 15 * time.Minute // what a step may take when an attempt's time is over; Restate gives it 11
)

// bound refuses what goes beyond l. Restate tries again what is refused.
func bound(next http.Handler, l limits) http.Handler {
	b := &bounds{limits: l}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.deadlines(w, r)
		if r.ContentLength > l.journalBytes {
			http.Error(w, fmt.Sprintf("body is %d bytes long (at most %d)", r.ContentLength, l.journalBytes),
				http.StatusRequestEntityTooLarge)
			return
		}
		i := &invocation{ResponseWriter: w, bounds: b, body: http.MaxBytesReader(w, r.Body, l.journalBytes)}
		if !b.enter(i) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d invocations run already, which is the most at once", l.invocations),
				http.StatusServiceUnavailable)
			return
		}
		defer i.end()
		r.Body = i
		next.ServeHTTP(i, r)
	})
}

// deadlines are those of a request that does not run: for its body, and for its answer.
func (l limits) deadlines(w http.ResponseWriter, r *http.Request) {
	answer := 2 * l.arrival // one that came too late is told so
	if spanName(r) != "" {
		answer = l.attempt + stepMax
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(l.arrival)) // a test's writer may have none
	_ = control.SetWriteDeadline(time.Now().Add(answer))
}
