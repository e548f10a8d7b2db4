package node

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/bounded"
)

// routesGate handles the HTTP routes as gate handles the service, and shares its bounds. Only its errors have another
// format.
//
// A shed call gets 429 here and not 503. The routes' clients return a 429 immediately, as a distinct error. They would
// repeat a 503 for ten seconds, although the node is already too busy.
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
		if refusal, ok := errors.AsType[*bounded.Refusal](err); ok && refusal.Status() == http.StatusRequestEntityTooLarge {
			status = http.StatusRequestEntityTooLarge
		}
	}
	routes.Refuse(w, routes.NewFault(status, "%s", message(err)))
}

// message returns an error's message without its code.
func message(err error) string {
	if coded, ok := errors.AsType[*connect.Error](err); ok {
		return coded.Message()
	}
	return err.Error()
}
