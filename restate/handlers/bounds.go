package handlers

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirhq/weir/shared/bounded"
)

// limits are what callers of the handlers' port can make it keep. Restate signs its requests where an
// identity key is set, and the SDK checks that by the headers, before it reads a body; without one the
// port is on loopback, where every process of the machine may call.
type limits struct {
	connections  int
	begun        int           // requests of one address, those among them that are about to be refused
	journalBytes int64         // of one request: the journal and state of an invocation, some hundred kB at the most
	allBytes     int64         // of all requests together
	arriving     int           // requests whose journal is not there yet; a further one has the oldest cut off
	arrival      time.Duration // until a journal is there
	invocations  int           // at once; jobs, rollouts and retirements are some dozens
	attempt      time.Duration // after that the input ends: the invocation is suspended, and goes on in another attempt
}

var usual = limits{
	connections:  256,
	begun:        512,
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
	streamsMax     = 128 // of a connection: Restate sends most invocations over one
	frameBytes     = 64 << 10
	aheadBytes     = 512 << 10        // of all journals of a connection, before they are read
	pingAfter      = 30 * time.Second // of silence: a peer that is gone gives its invocations back
	pingTimeout    = 15 * time.Second
	writeStalled   = 30 * time.Second
	stepMax        = 15 * time.Minute // what a step may take when an attempt's time is over; Restate gives it 11
)

// newBounds are bounds that refuse what goes beyond l, and call refused for it. Restate tries again what is refused.
func newBounds(l limits, refused func(bounded.Bound)) *bounds {
	return &bounds{limits: l, refused: refused, run: make(map[*invocation]struct{})}
}

func (b *bounds) handler(next http.Handler) http.Handler {
	return bounded.Begin(bounded.Calls, b.begun, b.refused, http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, next) }))
}

func (b *bounds) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	i := &invocation{ResponseWriter: w, bounds: b, body: http.MaxBytesReader(w, r.Body, b.journalBytes)}
	i.readUntil(time.Now().Add(b.arrival))
	i.writeUntil(time.Now().Add(2 * b.arrival)) // one that came too late is told so
	if r.ContentLength > b.journalBytes {
		b.refused(bounded.BoundBody)
		http.Error(w, fmt.Sprintf("body is %d bytes long (at most %d)", r.ContentLength, b.journalBytes),
			http.StatusRequestEntityTooLarge)
		return
	}
	if !b.enter(i) {
		b.refused(bounded.BoundSlots)
		w.Header().Set("Retry-After", bounded.RetryAfterSeconds)
		http.Error(w, fmt.Sprintf("too many invocations at once (at most %d running, %d arriving)", b.invocations,
			b.limits.arriving), http.StatusServiceUnavailable)
		return
	}
	defer i.end()
	r.Body = i
	next.ServeHTTP(i, r)
}
