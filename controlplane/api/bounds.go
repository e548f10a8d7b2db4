package api

import (
	"errors"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/bounded"
)

// What all callers of the operators' port together can make it keep. See shared/bounded for how a
// single caller has a part of each.
const (
	connectionsMax = 512
	begunMax       = 256      // calls of one address, and as many probes and streams, refused ones among them
	memoryBytesMax = 32 << 20 // of bodies and answers on their way
	probeBytesMax  = 8 << 20  // the same of probes and scrapes, which calls cannot take away
	callsMax       = 64       // calls and pages that are worked on at a time
	metricsMax     = 4        // scrapes at a time, at most 3 of one caller
	workTimeout    = runTimeout + healthTimeout
)

// The same for what a connection keeps before a call is read.
const (
	headerBytesMax = 32 << 10
	streamsMax     = 32 // calls on one HTTP/2 connection at a time
	frameBytes     = 16 << 10
	aheadBytes     = 2 * requestBytesMax // of all calls of a connection
	pingAfter      = 30 * time.Second    // silence after which an HTTP/2 peer must prove that it lives
	pingTimeout    = 10 * time.Second
	writeStalled   = 10 * time.Second
)

// Listen bounds the connections of the operators' port. refused is called for each that is closed in favor of another;
// nil: nothing is.
func Listen(l net.Listener, refused func(bounded.Bound)) net.Listener {
	return bounded.Listen(l, new(bounded.Callers), connectionsMax, bound(refused, bounded.BoundConnections))
}

// bound is refused of one bound; nil where refused is.
func bound(refused func(bounded.Bound), b bounded.Bound) func() {
	if refused == nil {
		return nil
	}
	return func() { refused(b) }
}

// boundedRoutes applies bounds to every route of mux: bytes as sent and decompressed, memory of all
// calls together, slots, and time. Probes and scrapes have their own memory and take no slot, so
// calls cannot block them. Streams of the console must have no body; the console bounds the
// streams.
func boundedRoutes(mux http.Handler, refused func(bounded.Bound)) http.Handler {
	with := func(kind bounded.Kind, bytes int64, memory *bounded.Memory, slots *bounded.Slots) http.Handler {
		route := bounded.Route{Bytes: bytes}
		return bounded.Begin(kind, begunMax, refused, &bounded.Handler{
			Next: mux, Memory: memory, Slots: slots, Time: workTimeout, Refused: refused, Refuse: refuse,
			Route: func(*http.Request) bounded.Route { return route },
		})
	}
	const none = 0
	probe := with(bounded.Probes, none, bounded.NewMemory(bounded.Probes, probeBytesMax), nil)
	routes := http.NewServeMux()
	routes.Handle("/", with(bounded.Calls, requestBytesMax, bounded.NewMemory(bounded.Calls, memoryBytesMax),
		bounded.NewSlots(bounded.Calls, callsMax)))
	routes.Handle("/healthz", probe)
	routes.Handle("/readyz", probe)
	routes.Handle("/metrics", probe) // which has metricsMax
	routes.Handle("GET /console/events", bounded.Begin(bounded.Streams, begunMax, refused, withoutBody(refused, mux)))
	return routes
}

// withoutBody refuses requests that have a body. Over HTTP/1.1 the server reads the rest of a body
// before it answers, and a stream has no deadline for that.
func withoutBody(refused func(bounded.Bound), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if refused != nil {
			refused(bounded.BoundBody)
		}
		w.Header().Set("Connection", "close")
		http.Error(w, "this request must not have a body", http.StatusRequestEntityTooLarge)
	})
}

// refuse answers a call that ran into a bound, in its own protocol.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	code, status := connect.CodeInvalidArgument, http.StatusBadRequest
	var refusal *bounded.Refusal
	if errors.As(err, &refusal) {
		status = refusal.Status()
		code = connect.CodeResourceExhausted
		if refusal.Shed() {
			code = connect.CodeUnavailable
		}
	}
	if calls := connect.NewErrorWriter(); calls.IsSupported(r) {
		_ = calls.Write(w, r, connect.NewError(code, err)) // the caller may have gone
		return
	}
	http.Error(w, err.Error(), status)
}
