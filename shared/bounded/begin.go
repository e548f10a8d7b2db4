package bounded

import "net/http"

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
