package node

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/await"
)

func withRoutes(limiter Limiter) func(*Config) {
	return func(c *Config) {
		c.Routes = &routes.Service{Limiter: limiter, Workspace: "acme", Logger: slog.New(slog.DiscardHandler)}
	}
}

const v2Minimal = `{"namespace":"api","identifier":"x","limit":10,"duration":60000}`

// The real client packages report a panic with their own error class (testdata/clients/test.js, mode crash). The node
// logs the panic and continues.
func TestClientsOfANodeThatPanics(t *testing.T) {
	limiter := scripted{
		allow: func(context.Context, dataplane.Request) dataplane.Decision { panic("as told") },
		many:  func(context.Context, []dataplane.Request) dataplane.Batch { panic("as told") },
	}
	h := start(t, limiter, withRoutes(limiter))
	out, err := exec.CommandContext(t.Context(), "node", "nodecmd/testdata/clients/test.js", "crash", h.base, "any").CombinedOutput()
	if err != nil {
		t.Errorf("%v (without its packages: run `make setup`)\n%s", err, out)
	}
	if got := value(h.gate.metrics.panics); got != 2 || !strings.Contains(h.log.String(), "as told") {
		t.Errorf("%v panics counted; log:\n%s", got, h.log)
	}
}

// The real client packages report a node without a free slot immediately, as an error of the type for 429 (mode busy).
func TestClientsOfABusyNode(t *testing.T) {
	holding, release := make(chan struct{}), make(chan struct{})
	limiter := scripted{allow: func(context.Context, dataplane.Request) dataplane.Decision {
		close(holding)
		<-release
		return dataplane.Decision{Allowed: true}
	}}
	h := start(t, limiter, withRoutes(limiter), func(c *Config) { c.MaxInFlight, c.Routes.Overrides = 1, new(routes.Memory) })
	done := make(chan error)
	go func() {
		_, err := ask(t.Context(), doors[5].open(t, h), "slow", 1)
		done <- err
	}()
	<-holding
	out, err := exec.CommandContext(t.Context(), "node", "nodecmd/testdata/clients/test.js", "busy", h.base, "any").CombinedOutput()
	if err != nil {
		t.Errorf("%v (without its packages: run `make setup`)\n%s", err, out)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Calls of the routes are counted by route and outcome, and share the service's slots.
func TestRoutesAreCountedAndShed(t *testing.T) {
	holding, release := make(chan struct{}), make(chan struct{})
	limiter := scripted{allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
		if r.Identifier == "slow" {
			close(holding)
			<-release
		}
		return dataplane.Decision{Allowed: true}
	}}
	h := start(t, limiter, withRoutes(limiter), func(c *Config) { c.MaxInFlight = 1 })
	url := h.base + routes.Paths["limit"]
	done := make(chan int)
	go func() {
		request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(strings.Replace(v2Minimal, `"x"`, `"slow"`, 1)))
		if err != nil {
			panic(err)
		}
		request.Header.Set("Content-Type", "application/json")
		status, _, _ := do(t, request)
		done <- status
	}()
	<-holding
	status, header, answer := curl(t, url, v2Minimal)
	if status != 429 || header.Get("Content-Type") != "application/problem+json" || header.Get("Retry-After") != "1" || !strings.Contains(answer, `"status":429`) {
		t.Errorf("shed: %d %v %s", status, header, answer)
	}
	close(release)
	if status := <-done; status != 200 {
		t.Errorf("the call that held the slot: %d", status)
	}
	await.True(t, "the slot is free", func() bool { status, _, _ := curl(t, url, v2Minimal); return status == 200 })
	curl(t, url, `{}`)
	curl(t, url, strings.Repeat(" ", 17<<10))
	curl(t, h.base+routes.Paths["getOverride"], `{}`)
	limit, get := h.gate.metrics.calls[routes.Paths["limit"]].byCode, h.gate.metrics.calls[routes.Paths["getOverride"]].byCode
	await.True(t, "all are counted", func() bool {
		return value(limit["ok"]) >= 2 && value(limit["unavailable"]) >= 1 && value(limit["invalid_argument"]) == 2 && value(get["permission_denied"]) == 1
	})
}

// Unknown paths below /v2 get an error in the routes' format. Without Routes these paths do not exist.
func TestUnknownRoutes(t *testing.T) {
	h := start(t, scripted{}, withRoutes(scripted{}))
	for _, path := range []string{"/v2/", "/v2/ratelimit.nothing", "/v2/keys.verifyKey"} {
		status, header, answer := curl(t, h.base+path, "{}")
		var body struct{ Meta struct{ RequestID string } }
		if err := json.Unmarshal([]byte(answer), &body); err != nil || status != 404 || body.Meta.RequestID == "" || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, %v", path, status, answer, err)
		}
	}
	if status, _, _ := curl(t, start(t, scripted{}).base+routes.Paths["limit"], v2Minimal); status != 404 {
		t.Errorf("without Routes: %d", status)
	}
}

// A caller that disconnects in the middle of a body leaves no slot taken.
func TestRouteBodyBreaksOff(t *testing.T) {
	h := start(t, scripted{}, withRoutes(scripted{}), func(c *Config) { c.MaxInFlight = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	silent, writer := io.Pipe()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+routes.Paths["limit"], silent)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	client, gone := http1Client(t), make(chan struct{})
	go func() {
		defer close(gone)
		if response, err := client.Do(request); err == nil {
			response.Body.Close()
		}
	}()
	if _, err := writer.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the call has the slot", func() bool { return value(h.gate.metrics.inFlight) == 1 })
	cancel()
	writer.Close()
	<-gone
	await.True(t, "the slot is free", func() bool { return value(h.gate.metrics.inFlight) == 0 })
}
