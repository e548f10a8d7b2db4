package bounded

import (
	"errors"
	"net/http"
)

// Begin rejects a call while `most` calls of its address are in progress, before anything is allocated for it. The
// response has no body, so a caller that reads nothing of it uses no memory of the server. refused is called for each
// rejected call; it may be nil. The server's ConnContext must be the ConnContext of this package.
func Begin(kind Kind, most int, refused func(Bound), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := CallerOf(r.Context())
		if !caller.Begin(kind, most) {
			if refused != nil {
				refused(BoundCaller)
			}
			w.Header().Set("Retry-After", RetryAfterSeconds)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer caller.End(kind)
		next.ServeHTTP(w, r)
	})
}

// Few serves at most `most` requests at a time, and at most three quarters of them for one address. It rejects further
// requests with 503. Use it for requests that need much memory or processor time, such as scrapes. Few calls refused
// for each refusal; it may be nil. The server's ConnContext must be the ConnContext of this package.
func Few(kind Kind, most int, refused func(Bound), next http.Handler) http.Handler {
	slots := NewSlots(kind, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := CallerOf(r.Context())
		if err := slots.Take(caller); err != nil {
			if refusal, ok := errors.AsType[*Refusal](err); ok && refused != nil {
				refused(refusal.Bound)
			}
			w.Header().Set("Retry-After", RetryAfterSeconds)
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer slots.Give(caller)
		next.ServeHTTP(w, r)
	})
}
