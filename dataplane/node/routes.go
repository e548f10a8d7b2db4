package node

import (
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane/node/routes"
)

// routesGate stands before the HTTP routes as gate does before the service, and shares
// its slots; only its refusals have another form.
//
// A shed call is 429 here and not 503: it is the one refusal that these clients know by
// its type and hand on at once. A 503 they would repeat for ten seconds, to a node that
// has too much to do already.
type routesGate struct {
	*gate
	routes *routes.Service
}

func (g routesGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call, known := g.metrics.calls[r.URL.Path]
	if !known {
		routes.Refuse(w, routes.NewFault(http.StatusNotFound, "there is no such route"))
		return
	}
	if err := g.tokens.admit(r.Header.Get("Authorization")); err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		routes.Refuse(w, routes.NewFault(http.StatusUnauthorized, "%s", message(err)))
		call.count(connect.CodeUnauthenticated.String())
		return
	}
	if !g.slots.TryAcquire(1) {
		w.Header().Set("Retry-After", shedRetryAfterSeconds)
		routes.Refuse(w, routes.NewFault(http.StatusTooManyRequests, "%s", g.full().Message()))
		call.count(connect.CodeUnavailable.String())
		return
	}
	defer g.slots.Release(1)
	g.metrics.inFlight.Inc()
	defer g.metrics.inFlight.Dec()

	start := time.Now()
	answer := &answer{ResponseWriter: w}
	defer func() {
		if p := recover(); p != nil {
			g.panicked(answer, r, p)
		}
		call.count(httpCode(answer.statusSent()))
		call.observe(start)
		if answer.broken {
			panic(http.ErrAbortHandler)
		}
	}()
	g.routes.ServeHTTP(answer, r)
}

// panicked is gate's, in the routes' form.
func (g routesGate) panicked(answer *answer, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		answer.broken = true
		return
	}
	internal := g.recovered(r.Context(), r.URL.Path, p)
	if answer.status != 0 {
		answer.broken = true
		return
	}
	routes.Refuse(answer, routes.NewFault(http.StatusInternalServerError, "%s", internal.Message()))
}

// message is an error's without its code.
func message(err error) string {
	var coded *connect.Error
	if errors.As(err, &coded) {
		return coded.Message()
	}
	return err.Error()
}
