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

// Few serves at most most requests at a time, and three quarters of them to one address. A further one is refused with
// 503. Use it for what takes much of the processor or of memory, such as scrapes. refused, which may be nil, is called
// for each refusal. The server's ConnContext is the one of this package.
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
