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
	w.stderr.Reset()
	want := "weirctl: invalid: --since is \"91d\" (1h to 90d)\nCorrect it and try again; see weirctl usage --help.\n"
	if code := w.run(t, "usage", "--since", "91d"); code != exitUsage || w.stderr.String() != want {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// A day with cost whose hours are not all known is too low, not unknown, and is written without a time.
func TestUsageOfADayWithUnknownHours(t *testing.T) {
	w := newWorld(t)
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	w.usage = limits.Usage{Now: at, Step: 24 * time.Hour, Times: []limits.UsageTime{{At: at}, {At: at.Add(24 * time.Hour)}},
		Series: []limits.UsageSeries{{UsageOf: heartbeat.UsageOf{Workspace: "acme", Namespace: "api"},
			Sum: heartbeat.UsageCost{Accepted: 346}, Costs: []heartbeat.UsageCost{{}, {Accepted: 346}}}}}
	if code := w.run(t, "usage", "acme", "api", "--step", "day"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	for _, want := range []string{"2026-01-02  -         -       unknown: no reports\n",
		"2026-01-03  346       ~0      too low: some hours without reports\n",
		"2 days unknown or too low (a gap in the line)"} {
		if !strings.Contains(w.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, w.stdout.String())
		}
	}
}

// Regions that did not report are named, whether others reported or not. A namespace whose figures were not all read is
// marked.
func TestUsageOfAnOutage(t *testing.T) {
	w := newWorld(t)
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	w.usage = limits.Usage{Now: at, Step: time.Hour, Truncated: true,
		Times: []limits.UsageTime{{At: at, Missing: []string{"eu", "us"}}, {At: at.Add(time.Hour), Missing: []string{"us"}}},
		Series: []limits.UsageSeries{{UsageOf: heartbeat.UsageOf{Workspace: "acme", Namespace: "api"},
			Sum: heartbeat.UsageCost{Accepted: 346}, Costs: []heartbeat.UsageCost{{}, {Accepted: 346}}}}}
	if code := w.run(t, "usage", "acme", "api"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	for _, want := range []string{"2026-01-02 03:00  -         -       unknown: no reports of eu, us\n",
		"2026-01-02 04:00  346       ~0      too low: no reports of us\n", "Some cost is missing: there are more figures"} {
		if !strings.Contains(w.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, w.stdout.String())
		}
	}
}

// A line has at most barsMost characters: the hours of a week are added up in pairs, which the table's head names.
func TestALineOfAWeekFitsATerminal(t *testing.T) {
	const hours = 7*24 + 1
	times, costs := make([]limits.UsageTime, hours), make([]heartbeat.UsageCost, hours)
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for i := range times {
		times[i] = limits.UsageTime{At: at.Add(time.Duration(i) * time.Hour), Known: i > 2}
		costs[i].Accepted = 10
	}
	w := newWorld(t)
	w.usage = limits.Usage{Now: at, Step: time.Hour, Times: times,
		Series: []limits.UsageSeries{{UsageOf: heartbeat.UsageOf{Workspace: "acme", Namespace: "api"}, Costs: costs}}}
	if code := w.run(t, "usage", "--since", "7d"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	// 169 hours are 85 characters: one hour, then pairs. The first two characters have no known hour.
	if want := "  " + strings.Repeat("█", 83) + "\n"; !strings.Contains(w.stdout.String(), want) ||
		!strings.Contains(w.stdout.String(), "ACCEPTED BY 2 HOURS") {
		t.Errorf("no line of 85 characters in\n%s", w.stdout.String())
	}
}
