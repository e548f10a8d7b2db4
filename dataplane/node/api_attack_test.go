package node

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// A page of another origin can make a browser send a call that spends a budget, because "simple" requests need no
// preflight. The node's API and its routes accept only application/json, for which a browser sends a preflight.
func TestAPageOfAnotherOriginSpendsNothing(t *testing.T) {
	h, _ := serveOther(t, new(other))
	page := []string{"Content-Type", "text/plain", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site",
		"Sec-Fetch-Mode", "no-cors"}
	if code, _, answer := curl(t, h.base+"/weir.v1.RateLimitService/Limit", `{"limit":1}`, page...); code == 200 {
		t.Errorf("the node's own API: %d %s", code, answer)
	}
	if code, _, answer := curl(t, h.base+"/other/call", "{}", page...); code == 200 {
		t.Errorf("the further API: %d %s", code, answer)
	}
}

// A call that is refused for its items is counted by its own code.
func TestARefusalForItemsHasItsCode(t *testing.T) {
	h, client := serveOther(t, new(other))
	_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Message: "{{{"}})
	_, answer := get(t, h.adminBase+"/metrics")
	if !strings.Contains(answer, `weir_rpc_requests_total{code="out_of_range",method="other.Call"} 1`) {
		t.Errorf("%v\n%s", err, answer)
	}
}

// ends is an API whose probe checks its context, as a probe that reads a database would.
type ends struct{ other }

func (e *ends) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.Context().Err(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprint(w, "alive")
}

// The port for probes serves until everything else has ended. Its calls are not abandoned with other calls.
func TestProbesGoOnWhileTheLimiterStops(t *testing.T) {
	stopping, stop := make(chan struct{}), make(chan struct{})
	e := new(ends)
	h := start(t, scripted{stop: func(context.Context) error { close(stopping); <-stop; return nil }}, func(c *Config) {
		c.API = &API{Service: &testpb.TestService_ServiceDesc, Server: e, HTTP: e, Refuse: refuseOther,
			Methods: []Method{{Name: "EmptyCall", Path: "/other/health", Probe: true}}, ProbeListen: "127.0.0.1:0"}
	})
	drained := make(chan error, 1)
	go func() { drained <- h.Drain() }()
	<-stopping
	if code, answer := get(t, "http://"+h.ProbeAddr().String()+"/other/health"); code != 200 {
		t.Errorf("while the limiter stops: %d %s", code, answer)
	}
	if code, _ := get(t, h.adminBase+"/healthz"); code != 200 {
		t.Error(code)
	}
	close(stop)
	if err := <-drained; err != nil {
		t.Error(err)
	}
}
