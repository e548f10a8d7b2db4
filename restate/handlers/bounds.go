package handlers

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirhq/weir/shared/bounded"
)

// limits bound what callers of the handlers' port can use up. If an identity key is set, Restate signs its requests,
// and the SDK checks the signature in the headers before it reads a body. Without a key the port must be on loopback,
// where every process of the machine can call it.
type limits struct {
	connections  int
	begun        int           // requests of an address, including requests that will be refused
	journalBytes int64         // of a request: the journal and state of an invocation, at most some hundred kB
	allBytes     int64         // of all requests together
	arriving     int           // requests whose journal is incomplete; a further request cuts off the oldest
	arrival      time.Duration // until a journal is complete
	invocations  int           // at once; jobs, rollouts and retirements need some dozens
	attempt      time.Duration // then the input ends, so the invocation is suspended and continues in another attempt
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

// Bounds on connections.
const (
	idleTimeout    = 2 * time.Minute
	headerBytesMax = 64 << 10
	streamsMax     = 128 // of a connection: Restate sends most invocations over the same connection
	frameBytes     = 64 << 10
	aheadBytes     = 512 << 10        // of all journals of a connection, before they are read
	pingAfter      = 30 * time.Second // of silence: the invocations of a dead peer end
	pingTimeout    = 15 * time.Second
	writeStalled   = 30 * time.Second
	stepMax        = 15 * time.Minute // for a step after the end of an attempt; Restate allows 11 minutes
)

// newBounds returns bounds that reject requests beyond l, and call refused for each. Restate retries rejected requests.
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
	i.writeUntil(time.Now().Add(2 * b.arrival)) // also bounds the response to a late request
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
