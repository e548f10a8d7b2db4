package node

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/bounded"
)

// routesGate stands before the HTTP routes as gate does before the service, and shares
// its bounds; only its refusals have another form.
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
	g.serve(w, r, call, g)
}

func (g routesGate) route(path string) bounded.Route {
	return bounded.Route{Bytes: routes.BytesMax(path)}
}

func (g routesGate) answer(w *bounded.Answer, r *http.Request, _ []byte) { g.routes.ServeHTTP(w, r) }

func (g routesGate) code(a *bounded.Answer) string {
	if a.Status() == http.StatusTooManyRequests {
		return connect.CodeUnavailable.String()
	}
	return httpCode(a.Status())
}

func (g routesGate) refuse(w http.ResponseWriter, _ *http.Request, err error) {
	status := http.StatusInternalServerError
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated:
		status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", "Bearer")
	case connect.CodePermissionDenied:
		status = http.StatusForbidden
	case connect.CodeUnavailable:
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", bounded.RetryAfterSeconds)
	case connect.CodeInvalidArgument, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		status = http.StatusBadRequest
		var refusal *bounded.Refusal
		if errors.As(err, &refusal) && refusal.Status() == http.StatusRequestEntityTooLarge {
			status = http.StatusRequestEntityTooLarge
		}
	}
	routes.Refuse(w, routes.NewFault(status, "%s", message(err)))
}

// message is an error's without its code.
func message(err error) string {
	var coded *connect.Error
	if errors.As(err, &coded) {
		return coded.Message()
	}
	return err.Error()
}
