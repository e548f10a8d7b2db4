package bounded

import (
	"errors"
	"net/http"
)

// Begin refuses calls that one address begins beyond most, before anything is allocated for them. The answer has
// no body: a caller that takes no bytes of it keeps nothing of the server. refused, which may be nil, is called for
// each. The server's ConnContext is the one of this package.
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

// Few serves at most `most` requests at a time, and at most three quarters of them for one address;
// it answers further ones with 503. Use it for requests that need much memory or processor time,
// such as scrapes. Few calls refused for each refusal; it may be nil. The server's ConnContext must
// be the one of this package.
func Few(kind Kind, most int, refused func(Bound), next http.Handler) http.Handler {
	slots := NewSlots(kind, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := CallerOf(r.Context())
		if err := slots.Take(caller); err != nil {
			var refusal *Refusal
			if errors.As(err, &refusal) && refused != nil {
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
