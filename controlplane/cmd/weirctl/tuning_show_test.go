package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/tunings"
)

// tuned regions: eu has a tuning of its own.
func newTunedWorld(t *testing.T) *world {
	w := newWorld(t)
	fleet, eu := controltest.Document(), controltest.Document("floor=0.3", "step=0.02")
	by := controlplane.By{Actor: "ann", Reason: "fewer rows"}
	w.inForce = []tunings.RegionTuning{{Version: 3, Document: fleet}, {Region: "eu", Version: 4, Document: eu}}
	w.versions = []tunings.Version{
		{RegionTuning: w.inForce[1], By: by, At: now, Rollout: "r7"},
		{RegionTuning: w.inForce[0], By: by, At: now.Add(-time.Hour)},
		{RegionTuning: tunings.RegionTuning{Version: 2, Document: `{"floor":0.5}`}, By: by, At: now.Add(-2 * time.Hour), Rollout: "r6"},
		{RegionTuning: tunings.RegionTuning{Region: "eu", Version: 1, Document: `[]`}, By: by, At: now.Add(-3 * time.Hour)},
	}
	return w
}

func TestTuningGet(t *testing.T) {
	w := newTunedWorld(t)
	code := w.run(t, "tuning", "get")
	for _, want := range []string{"FIELD ", " fleet ", " eu\n", "floor ", " 0.1 ", " 0.3\n", "version ", " 3 ", " 4\n"} {
		if code != exitOK || !strings.Contains(w.stdout.String(), want) {
			t.Errorf("exit %d, no %q in\n%s", code, want, w.stdout.String())
		}
	}
	if code := w.run(t, "tuning", "get", "--region", "us"); code != exitOK || strings.Contains(w.stdout.String(), "eu") || !strings.Contains(w.stdout.String(), "fleet") {
		t.Errorf("a region without its own: exit %d\n%s", code, w.stdout.String())
	}
	if code := w.run(t, "tuning", "get", "--region", "eu", "-o", "json"); code != exitOK || strings.Count(w.stdout.String(), `"region"`) != 1 || !strings.Contains(w.stdout.String(), `"region": "eu"`) {
		t.Errorf("exit %d\n%s", code, w.stdout.String())
	}
}

func TestTuningDiff(t *testing.T) {
	w := newTunedWorld(t)
	const same = "fleet:\n  nothing changes\n"
	w.want(t, w.run(t, "tuning", "diff"), exitOK, same+"eu:\n  floor: 0.3 -> 0.1\n  step: 0.02 -> 0.01\n")
	w.want(t, w.run(t, "tuning", "diff", "--set", "floor=0.2", "--from", "eu"), exitOK,
		"fleet:\n  floor: 0.1 -> 0.2\n  step: 0.01 -> 0.02\neu:\n  floor: 0.3 -> 0.2\n")
	w.want(t, w.run(t, "tuning", "diff", "--version", "2"), exitOK,
		"fleet:\n  floor: 0.1 -> 0.5\neu:\n  floor: 0.3 -> 0.5\n  step: 0.02 -> 0.01\n")
	if code := w.run(t, "tuning", "diff", "-o", "yaml"); code != exitOK || !strings.Contains(w.stdout.String(), "  - region: eu\n    changes:\n      - field: floor\n        from: \"0.3\"\n") {
		t.Errorf("exit %d\n%s", code, w.stdout.String())
	}
	for args, says := range map[string]string{
		"--version 9":               "--version is 9, which was never written",
		"--version 2 --set floor=1": "use one",
		"--set floor=9 --from eu":   "floor",
		"--set floor=0.3":           "--from (fleet, eu)",
	} {
		if code := w.run(t, append([]string{"tuning", "diff"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("%s: exit %d, %s", args, code, w.stderr.String())
		}
	}
}

// Each version has its author, time and reason. A version that this build cannot read has a note about that.
func TestTuningHistory(t *testing.T) {
	w := newTunedWorld(t)
	code := w.run(t, "tuning", "history")
	for _, want := range []string{
		"VERSION  REGION  WRITTEN               BY   ROLLOUT  TUNING\n4        eu      2026-01-02 15:04:05Z  ann  r7       fewer rows\n",
		"floor 0.3, step 0.02", "\n3        fleet   2026-01-02 14:04:05Z  ann  -  ", "floor 0.5, step 0.01", "invalid",
	} {
		if code != exitOK || !strings.Contains(w.stdout.String(), want) {
			t.Errorf("exit %d, no %q in\n%s", code, want, w.stdout.String())
		}
	}
	if code := w.run(t, "tuning", "history", "--region", "fleet", "--limit", "1"); code != exitOK || strings.Contains(w.stdout.String(), "eu") || !strings.HasSuffix(w.stdout.String(), "\nOlder ones: --before 3\n") {
		t.Errorf("exit %d\n%s", code, w.stdout.String())
	}
	if code := w.run(t, "tuning", "history", "--before", "3", "--region", "eu", "-o", "json"); code != exitOK || strings.Count(w.stdout.String(), `"version"`) != 1 {
		t.Errorf("exit %d\n%s", code, w.stdout.String())
	}
	if code := w.run(t, "tuning", "history", "--limit", "101"); code != exitUsage || !strings.Contains(w.stderr.String(), "limit is 101 (1 to 100, 0 for 20)") {
		t.Errorf("exit %d\n%s", code, w.stderr.String())
	}
	w.versions = nil
	w.want(t, w.run(t, "tuning", "history"), exitOK, "no version of the tuning was written: the default is in force\n")
}

// set starts a rollout of one stage that compares nothing, which --at-once confirms.
func TestTuningSet(t *testing.T) {
	w := newWorld(t)
	args := []string{"tuning", "set", "--set", "floor=0.3", "--reason", "Redis is full"}
	for _, tc := range []struct{ more, says string }{
		{"", "no region is named"}, {"--all", "--at-once is missing"}, {"--region eu --all --at-once", "--region and --all can't be used together"},
	} {
		if code := w.run(t, append(args, strings.Fields(tc.more)...)...); code != exitUsage || !strings.Contains(w.stderr.String(), tc.says) || len(w.rollouts.list) > 0 {
			t.Errorf("%s: exit %d, %s", tc.more, code, w.stderr.String())
		}
	}
	if code := w.run(t, append(args, "--region", "eu", "--at-once", "--id", "r1", "--yes")...); code != exitOK || w.stderr.String() != "eu:\n  floor: 0.1 -> 0.3\n" {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	r := w.rollouts.list[0]
	if plan := r.Spec.Plan; r.Document != controltest.Document("floor=0.3") || plan.BaselineMs != 0 || len(plan.Stages) != 1 || plan.Stages[0].BakeMs != 100 || plan.Stages[0].Regions[0] != "eu" || w.rollouts.by.Reason != "Redis is full" {
		t.Errorf("%+v", r)
	}
}
