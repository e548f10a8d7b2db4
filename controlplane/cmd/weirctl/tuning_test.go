package main

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/tunings"
)

// --set edits the tuning in force: the other fields keep the values in force instead of the defaults. The change is
// shown before the rollout starts. --dry-run needs no stage.
func TestRolloutStartSetsOneFieldOfWhatIsInForce(t *testing.T) {
	w := newWorld(t)
	running := controltest.Document("floor=0.5", "step=0", "settings_interval_ms=10000")
	w.inForce = []tunings.RegionTuning{{Version: 4, Document: running}, {Region: "eu", Version: 5, Document: running}}
	args := []string{"rollout", "start", "--set", "floor=0.3", "--set", "jitter=0.1", "--id", "r1", "--reason", "fewer rows"}
	const diff = "fleet, eu:\n  floor: 0.5 -> 0.3\n  jitter: 0.2 -> 0.1\n"
	if code := w.run(t, append(args, "--dry-run")...); code != exitOK || w.stderr.String() != diff || len(w.rollouts.list) > 0 {
		t.Fatalf("exit %d, %d rollouts, %s", code, len(w.rollouts.list), w.stderr.String())
	}
	if code := w.run(t, append(args, "--stage", "all")...); code != exitOK || w.stderr.String() != diff {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	if got, want := w.rollouts.list[0].Document, controltest.Document("floor=0.3", "step=0", "settings_interval_ms=10000", "jitter=0.1"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// If regions run different tunings, --from must name the tuning to change.
func TestSetFromARegion(t *testing.T) {
	w := newWorld(t)
	w.inForce = []tunings.RegionTuning{{Document: controltest.Document()}, {Region: "eu", Version: 5, Document: controltest.Document("step=0.5")}}
	args := []string{"rollout", "start", "--set", "floor=0.3", "--stage", "all", "--reason", "x"}
	if code := w.run(t, args...); code != exitUsage || !strings.Contains(w.stderr.String(), "different tunings in force: name the one that --set changes with --from (fleet, eu)") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	const diff = "fleet:\n  floor: 0.1 -> 0.3\n  step: 0.01 -> 0.5\neu:\n  floor: 0.1 -> 0.3\n"
	if code := w.run(t, append(args, "--from", "eu")...); code != exitOK || w.stderr.String() != diff {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if code := w.run(t, "rollout", "preview", "--set", "floor=0.3", "--from", "fleet"); code != exitOK || w.previews.asked.New != controltest.Document("floor=0.3") {
		t.Errorf("exit %d, %s, %s", code, w.previews.asked.New, w.stderr.String())
	}
}
