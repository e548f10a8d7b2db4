package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/heartbeat"
)

// usage prints the namespaces with the most cost, or the steps of one namespace. Unknown steps are gaps, and differ
// from steps without cost.
func TestUsage(t *testing.T) {
	w := newWorld(t)
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	w.usage = limits.Usage{Now: at, Step: time.Hour, Truncated: true,
		Times: []limits.UsageTime{{At: at, Known: true}, {At: at.Add(time.Hour)}, {At: at.Add(2 * time.Hour), Missing: []string{"us"}},
			{At: at.Add(3 * time.Hour), Known: true}},
		Series: []limits.UsageSeries{
			{UsageOf: heartbeat.UsageOf{Workspace: "acme", Namespace: "api"}, Sum: heartbeat.UsageCost{Accepted: 1200, Denied: 70},
				Costs: []heartbeat.UsageCost{{Accepted: 800, Denied: 70}, {}, {Accepted: 400}, {}}},
		}}
	for args, wants := range map[string][]string{
		"usage --since 7d":      {"acme", "1,200", "~70", "█  ▁", "More namespaces had cost", "2 hours unknown"},
		"usage acme api":        {"2026-01-02 03:00", "unknown: no reports", "too low: no reports of us", "accepted █  ▁"},
		"usage acme --step day": {"acme"},
	} {
		w.stdout.Reset()
		if code := w.run(t, strings.Fields(args)...); code != exitOK {
			t.Errorf("%s: exit %d, %s", args, code, w.stderr.String())
		}
		for _, want := range wants {
			if !strings.Contains(w.stdout.String(), want) {
				t.Errorf("%s: no %q in\n%s", args, want, w.stdout.String())
			}
		}
	}
	if code := w.run(t, "usage", "--since", "91d"); code == exitOK || !strings.Contains(w.stderr.String(), `--since is "91d" (1h to 90d)`) {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}
