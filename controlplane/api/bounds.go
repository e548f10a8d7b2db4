package api

import (
	"errors"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/bounded"
)

// Bounds of the operators' port for all callers together. A single caller can use a part of each; see shared/bounded.
const (
	connectionsMax = 512
	begunMax       = 256      // calls of one address; as many probes and streams; rejected requests included
	memoryBytesMax = 32 << 20 // of request bodies and responses in progress
	probeBytesMax  = 8 << 20  // the same for probes and scrapes, which calls cannot use up
	callsMax       = 64       // calls and pages at a time
	metricsMax     = 4        // scrapes at a time, at most 3 of one caller
	workTimeout    = runTimeout + healthTimeout
)

// Bounds of the memory that a connection uses before a call is read.
const (
	headerBytesMax = 32 << 10
	streamsMax     = 32 // calls on one HTTP/2 connection at a time
	frameBytes     = 16 << 10
	aheadBytes     = 2 * requestBytesMax // of all calls of a connection
	pingAfter      = 30 * time.Second    // silence after which an HTTP/2 peer must answer a ping
	pingTimeout    = 10 * time.Second
	writeStalled   = 10 * time.Second
)

// Listen bounds the connections of the operators' port. refused may be nil; otherwise it is called for each connection
// that is closed in favor of another.
func Listen(l net.Listener, refused func(bounded.Bound)) net.Listener {
	return bounded.Listen(l, new(bounded.Callers), connectionsMax, bound(refused, bounded.BoundConnections))
}

// bound returns a function that calls refused with a bound, or nil if refused is nil.
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
	routes.Handle("/metrics", probe) // bounded by metricsMax, too
	routes.Handle("GET /console/events", bounded.Begin(bounded.Streams, begunMax, refused, withoutBody(refused, mux)))
	return routes
}

// withoutBody rejects requests that have a body. Over HTTP/1.1 the server reads the rest of a body before it responds,
// and a stream has no deadline for that.
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

// refuse responds to a call that exceeds a bound, in the call's own protocol.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	code, status := connect.CodeInvalidArgument, http.StatusBadRequest
	if refusal, ok := errors.AsType[*bounded.Refusal](err); ok {
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
