package node

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/shared/bounded"
)

// API is a further API that a Server answers. For example, it can be the API of a limiter that Weir replaces, so that
// its clients need no change. Its calls pass the gate as the server's own calls do: they need a token if the server has
// tokens, their bytes, items, time and slots are bounded, and metrics count them.
type API struct {
	// Service, which Server implements, is served on GRPCListen. Only unary methods that Methods names are served.
	Service *grpc.ServiceDesc
	Server  any

	Methods []Method

	// Workspace holds all keys of the API. A token with a list of workspaces is valid for the API
	// only if Workspace is in the list; if Workspace is empty, no such token is valid.
	Workspace string

	// HTTP serves the paths of Methods on Listen. It gets bodies that are in memory and within their bounds.
	HTTP http.Handler

	// Refuse answers a call by HTTP that HTTP does not get to see. err has a status of gRPC's.
	Refuse func(w http.ResponseWriter, err error)

	// ProbeListen is an address that serves only the paths of Probe methods, with Config's TLS and without client
	// certificates. If it is empty, there is no such port.
	ProbeListen string

	// Draining, unless nil, is called when the server wants no more calls.
	Draining func()
}

// Method is a method of an API.
type Method struct {
	Name  string // of Service's
	Path  string // by HTTP
	Label string // in metrics

	// Probe makes it health: it needs neither token nor slot, has memory of its own and takes 1 KiB at most.
	Probe bool

	// BytesMax bounds a body over HTTP. All messages on GRPCListen have the same bound.
	BytesMax int64

	// CheckMessage looks at a message of gRPC before anything decodes it, and CheckBody at a body by HTTP: at how many
	// items it holds, see FieldsIn and ObjectsIn. An error wraps a *bounded.Refusal, and may have a GRPCStatus of its own.
	CheckMessage, CheckBody func([]byte) error
}

func (a *API) procedure(m Method) string { return "/" + a.Service.ServiceName + "/" + m.Name }

// labels returns the labels of methods in metrics, by procedure and path.
func (a *API) labels() map[string]string {
	labels := make(map[string]string)
	if a == nil {
		return labels
	}
	for _, m := range a.Methods {
		if m.Probe {
			continue
		}
		labels[a.procedure(m)] = m.Label
		labels[m.Path] = m.Label
	}
	return labels
}

// spanName returns the name of a call's span, or "" for other paths.
func (a *API) spanName(path string) string {
	if a == nil {
		return ""
	}
	i := slices.IndexFunc(a.Methods, func(m Method) bool { return m.Path == path && !m.Probe })
	if i < 0 {
		return ""
	}
	return a.Service.ServiceName + "/" + a.Methods[i].Name
}

// describeAPI puts the methods of an API on grpc-go.
func describeAPI(a *API, g *gate) *grpc.ServiceDesc {
	described := *a.Service
	described.Methods, described.Streams = nil, nil
	for _, method := range a.Service.Methods {
		i := slices.IndexFunc(a.Methods, func(m Method) bool { return m.Name == method.MethodName })
		if i < 0 {
			continue
		}
		if a.Methods[i].Probe {
			method.Handler = g.probeRPC(implementedBy(a.Server, method.Handler))
		} else {
			method = a.behind(g, a.Methods[i], implementedBy(a.Server, method.Handler))
		}
		described.Methods = append(described.Methods, method)
	}
	return &described
}

// implementedBy binds a handler to its server, because grpc-go has no server for services that are described here.
func implementedBy(server any, handler grpc.MethodHandler) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, between grpc.UnaryServerInterceptor) (any, error) {
		return handler(server, ctx, decode, between)
	}
}

func (a *API) behind(g *gate, m Method, handler grpc.MethodHandler) grpc.MethodDesc {
	return behind(g, a.procedure(m), m.CheckMessage, func(ctx context.Context, message *arrived) (any, error) {
		answer, err := handler(nil, ctx, func(into any) error { return g.readRPC(message, into) }, nil)
		if err != nil {
			return nil, grpcError(err)
		}
		return answer, nil
	})
}

// handleAPI serves the further API by HTTP.
func (s *Server) handleAPI(mux *http.ServeMux) {
	api := s.config.API
	if api == nil {
		return
	}
	health, probes := http.NewServeMux(), s.bounds.probe(api.HTTP)
	pages := http.NewCrossOriginProtection() // a body of any Content-Type is a call
	pages.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.bounds.refused[bounded.BoundHost].Inc()
		w.Header().Set("Connection", "close") // its body is not read
		http.Error(w, "a web page of another origin sent this request", http.StatusForbidden)
	}))
	for _, m := range api.Methods {
		if m.Probe {
			mux.Handle(m.Path, probes)
			health.Handle(m.Path, probes)
		} else {
			mux.Handle(m.Path, pages.Handler(apiGate{s.gate, api, m}))
		}
	}
	mux.Handle("/metrics", s.scrapes)
	if api.ProbeListen == "" {
		return
	}
	s.probes = &endpoint{name: "probe-listen", address: api.ProbeListen, bounds: s.bounds, most: adminConnectionsMax,
		server: callServer(context.Background(), s.bounds.begin(bounded.Probes, s.knownHosts(api.ProbeListen, health)),
			s.logger)}
	if s.config.TLS != nil {
		s.probes.server.TLSConfig = s.config.TLS.ConfigForAll("h2", "http/1.1")
	}
}

// apiGate stands before a method by HTTP as gate does before the service, and shares its bounds.
type apiGate struct {
	*gate
	api    *API
	method Method
}

func (g apiGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.serve(w, r, g.metrics.calls[g.method.Path], g)
}

func (g apiGate) route(string) bounded.Route { return bounded.Route{Bytes: g.method.BytesMax} }

// answer checks the body itself, because a Route's check depends on the Content-Type of the request.
func (g apiGate) answer(w *bounded.Answer, r *http.Request, body []byte) {
	if err := g.method.CheckBody(body); err != nil {
		g.count(err)
		g.refuse(w, r, refusedRPC(err))
		return
	}
	g.api.HTTP.ServeHTTP(w, r)
}

func (g apiGate) code(a *bounded.Answer) string { return httpCode(a.Status()) }

func (g apiGate) refuse(w http.ResponseWriter, _ *http.Request, err error) {
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case connect.CodeUnavailable:
		w.Header().Set("Retry-After", bounded.RetryAfterSeconds)
	}
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) {
		err = own.GRPCStatus().Err()
	} else {
		err = grpcError(err)
	}
	g.api.Refuse(w, err)
}
