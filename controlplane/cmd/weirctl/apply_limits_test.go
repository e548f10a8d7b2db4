package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/workspaces"
)

// Before apply changes anything, it prints which requests the overrides would have denied, and for which keys the
// estimate holds. A missing estimate does not stop apply.
func TestApplySaysWhatLimitsWouldHaveDenied(t *testing.T) {
	w, d := newDrawerWorld(t)
	var asked []limits.Change
	var estimate limits.Estimate
	var failed error
	server := httptest.NewServer(api.NewHandler(api.Config{
		Settings: limits.NewSettings(d), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Tuning: func(context.Context) ([]tunings.RegionTuning, error) { return w.inForce, nil },
		Limits: func(_ context.Context, changes []limits.Change, _ *workspaces.Set) (limits.Estimate, error) {
			asked = changes
			return estimate, failed
		},
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	document := path(t, filled)
	estimate = limits.Estimate{Reported: 37, Nodes: 4, Oldest: time.Second, Matched: 12, Unknown: 1, Cost: 1000, Denied: 31, Keys: 1,
		Worst: []limits.Key{{Workspace: "acme", Namespace: "api", Identifier: "user_1\x1b", Cost: 131, Limit: 100}}}
	const says = "of the 37 busiest keys that 4 nodes reported, 12 under these overrides (1 of them unknown: another window, or the " +
		"caller's limit); in the window under way these would have denied 3.1 % of their cost, of 1 key: acme/api/user_1? has 131 of 100 "
	if code := w.run(t, "apply", "-f", document, "--dry-run"); code != exitOK || !strings.Contains(flat(w.stdout.String()), says) {
		t.Errorf("exit %d, %s%s", code, w.stdout.String(), w.stderr.String())
	}
	if got := fmt.Sprint(asked); got != "[{acme api user_* 100 60000 true false} {zeta web evil 0 0 false false}]" {
		t.Errorf("asked for %s", got)
	}
	if code := w.run(t, "apply", "-f", document, "--dry-run", "-o", "json"); code != exitOK || !strings.Contains(w.stdout.String(), `"limits": "of the 37 busiest keys`) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
	for want, e := range map[string]limits.Estimate{
		"unknown: no live node has reported its busiest keys ":                   {},
		"of the 37 busiest keys that 4 nodes reported, 0 under these overrides ": {Reported: 37, Nodes: 4},
		"of a part of the 37 busiest keys that 1 node reported, 2 under these overrides; in the window under way these would have denied 0.0 % of their cost, of 0 keys ": {Reported: 37, Nodes: 1, Matched: 2, Cost: 5, Truncated: true},
	} {
		estimate = e
		if code := w.run(t, "apply", "-f", document, "--dry-run"); code != exitOK || !strings.Contains(flat(w.stdout.String()), want) {
			t.Errorf("exit %d, %s; want %s", code, w.stdout.String(), want)
		}
	}
	failed = fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable)
	if code := w.run(t, "apply", "-f", document, "--reason", "x"); code != exitOK || !strings.Contains(w.stdout.String(), "the effect of the overrides is unknown: ") || len(d.audit) != 4 {
		t.Errorf("exit %d, %s%s", code, w.stdout.String(), w.stderr.String())
	}
	asked, failed = nil, nil
	if code := w.run(t, "apply", "-f", path(t, "kind: weir-settings\nversion: 1\n"), "--prune", "--yes", "--reason", "x"); code != exitOK || len(asked) != 2 || !asked[0].Deleted {
		t.Errorf("exit %d, asked for %+v, %s", code, asked, w.stderr.String())
	}
}

// Before override set changes a limit, it prints which requests the new limit would have denied.
func TestOverrideSetSaysWhatTheLimitWouldHaveDenied(t *testing.T) {
	w, d := newDrawerWorld(t)
	var asked []limits.Change
	server := httptest.NewServer(api.NewHandler(api.Config{
		Settings: limits.NewSettings(d), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Limits: func(_ context.Context, changes []limits.Change, _ *workspaces.Set) (limits.Estimate, error) {
			asked = changes
			return limits.Estimate{Reported: 37, Nodes: 4, Matched: 12, Cost: 1000, Denied: 31, Keys: 1}, nil
		},
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	set := func(flags ...string) {
		t.Helper()
		args := append([]string{"override", "set", "acme", "api", "user_*", "--reason", "x"}, flags...)
		if code := w.run(t, args...); code != exitOK {
			t.Errorf("exit %d, %s", code, w.stderr.String())
		}
	}
	set("--limit", "100", "--duration", "1m", "--shadow")
	set("--limit", "50")
	const says = "12 under this override; in the window under way it would have denied 3.1 % of their cost, of 1 key "
	if got := fmt.Sprint(asked); got != "[{acme api user_* 50 60000 true false}]" || !strings.Contains(flat(w.stderr.String()), says) {
		t.Errorf("asked for %s; %s", got, w.stderr.String())
	}
	asked = nil
	if set("--no-shadow"); asked != nil {
		t.Errorf("without a limit: asked for %v", asked)
	}
}

// flat returns a text without its wrapping.
func flat(text string) string { return strings.ReplaceAll(text, "\n", " ") }
