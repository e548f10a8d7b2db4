package node

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// phase is where a server is in its life. It only moves forward:
// starting → serving → draining.
type phase int32

const (
	starting phase = iota
	serving
	draining
)

func (p phase) String() string {
	return [...]string{"starting", "serving", "draining"}[p]
}

// readiness reports on both ports and in both protocols (HTTP and gRPC) whether this node should get calls. An outage
// of Redis or MySQL does not make a node unready: otherwise all nodes of the region would be unready at the same time,
// although each can still decide. A full table of keys, or a problem of the node's surroundings, only adds a line to
// the response.
type readiness struct {
	phase     atomic.Int32
	tableFull func() bool // the limiter's table is full; nil: unknown

	problems func() []string // see Config.Problems
}

func (r *readiness) set(p phase) { r.phase.Store(int32(p)) }

func (r *readiness) get() phase { return phase(r.phase.Load()) }

// ServeHTTP is /readyz.
func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	now := r.get()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if now != serving {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintln(w, now)
	if r.tableFull != nil && r.tableFull() {
		fmt.Fprintln(w, "the table of keys is full: raise entries-max, or see who fills it (weir_untracked_decisions_total)")
	}
	if r.problems != nil {
		for _, problem := range r.problems() {
			fmt.Fprintln(w, problem)
		}
	}
}

// Check is grpc.health.v1, for the process ("") and for the service by name.
func (r *readiness) Check(_ context.Context, request *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	switch request.Service {
	case "", weirv1connect.RateLimitServiceName:
	default:
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("unknown service %q", request.Service))
	}
	if r.get() != serving {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}

// live is /healthz: as long as the process can answer it, there is no reason to
// restart it.
func live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintln(w, "live")
}
