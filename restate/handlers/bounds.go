package handlers

import (
	"fmt"
	"net/http"
	"time"
)

// What callers of the handlers' port may make it keep. Restate signs its requests where an identity
// key is set, and the SDK checks that by the headers, before it reads a body; without one the port is
// on loopback, where every process of the machine may call.
const (
	journalBytesMax = 64 << 20 // of one invocation's request: its journal and state, some hundred kB at the most
	invocationsMax  = 256      // at once; jobs, rollouts and retirements are some dozens
	idleTimeout     = 2 * time.Minute
)

// bounded lets few invocations run at once, and none read more than its journal may hold. Restate
// tries again what is refused.
func bounded(next http.Handler, invocations int, journalBytes int64) http.Handler {
	slots := make(chan struct{}, invocations)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > journalBytes {
			http.Error(w, fmt.Sprintf("body is %d bytes long (at most %d)", r.ContentLength, journalBytes),
				http.StatusRequestEntityTooLarge)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d invocations run already, which is the most at once", invocations),
				http.StatusServiceUnavailable)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, journalBytes)
		next.ServeHTTP(w, r)
	})
}
