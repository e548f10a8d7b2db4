package main

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
)

// Before a change of the whole fleet's decisions, weirctl describes the change and waits for a yes, as before a change
// that cannot be undone. Without a terminal it requires --yes.
func TestChangesOfTheWholeFleetAreConfirmed(t *testing.T) {
	for _, tc := range []struct{ args, call, change string }{
		{"override set acme api * --limit 0", "ChangeOverride", "every request of every identifier of acme/api that matches * is denied"},
		{"override set acme api user_* --limit 0 --duration 1m", "ChangeOverride", "that matches user_* is denied"},
		{"tuning set --set floor=0.3 --all --at-once", "StartRollout", "all nodes of all present and future regions get this tuning without stages"},
		{"tuning set --set floor=0.3 --region eu --region us --at-once", "StartRollout", "all nodes of eu, us get this tuning"},
		{"rollout rollback r1", "OperateRollout", "all nodes of rollout r1 return to the tuning or limits from before it, without stages"},
		{"token rotate ci --overlap 0s", "RotateToken", "calls with the current secret of token ci are refused from now on"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			world := func() *world {
				w := newWorld(t)
				w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all", "--id", "r1", "--reason", "x")
				w.rollouts.list[0].Phase = rollout.Done
				w.changes = nil
				return w
			}
			args := append(strings.Fields(tc.args), "--reason", "x")
			w := world()
			for answer, code := range map[string]int{"": exitUsage, "n\n": exitFailure, "\n": exitFailure} {
				w.stdin = answer
				if got := w.run(t, args...); got != code || len(w.changes) > 0 || !strings.Contains(w.stderr.String(), tc.change) || !strings.Contains(w.stderr.String(), "his takes effect at once") {
					t.Errorf("%q: exit %d, %q, %s", answer, got, w.changes, w.stderr.String())
				}
			}
			w.stdin = "y\n"
			if got := w.run(t, args...); got != exitOK || strings.Join(w.changes, " ") != tc.call {
				t.Errorf("exit %d, %q, %s", got, w.changes, w.stderr.String())
			}
			w = world()
			if got := w.run(t, append(args, "--yes")...); got != exitOK || strings.Join(w.changes, " ") != tc.call || strings.Contains(w.stderr.String(), "Go on?") {
				t.Errorf("exit %d, %q, %s", got, w.changes, w.stderr.String())
			}
			w = world()
			if got := w.run(t, append(args, "--dry-run")...); got != exitOK || len(w.changes) != 0 {
				t.Errorf("exit %d, %q, %s", got, w.changes, w.stderr.String())
			}
		})
	}
}

// A change of a single identifier, or a change without effect on decisions, needs no confirmation.
func TestOtherChangesAskNothing(t *testing.T) {
	for _, args := range []string{
		"override set acme api user_42 --limit 0",
		"override set acme api user_* --limit 1",
		"override set acme api user_* --limit 0 --shadow",
		"token rotate ci",
	} {
		w := newWorld(t)
		if code := w.run(t, append(strings.Fields(args), "--reason", "x")...); code != exitOK {
			t.Errorf("%s: exit %d, %s", args, code, w.stderr.String())
		}
	}
}

// Before apply blocks all identifiers of a pattern, it needs a confirmation, as override set does.
func TestApplyAsksBeforeItBlocksAPattern(t *testing.T) {
	w, d := newDrawerWorld(t)
	file := path(t, "kind: weir-settings\nversion: 1\noverrides:\n  - {workspace: acme, namespace: api, pattern: \"*\", limit: 0}\n")
	args := []string{"apply", "-f", file, "--reason", "x"}
	if code := w.run(t, args...); code != exitUsage || len(d.overrides) != 0 || !strings.Contains(w.stderr.String(), "this takes effect at once, and there is no terminal to ask on: + override acme/api/*") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	w.stdin = "y\n"
	if code := w.run(t, args...); code != exitOK || len(d.overrides) != 1 || strings.Count(w.stderr.String(), "Go on?") != 1 {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// Before apply and override set block a network, they need a confirmation.
func TestABlockedNetworkNeedsAConfirmation(t *testing.T) {
	w, d := newDrawerWorld(t)
	file := path(t, "kind: weir-settings\nversion: 1\noverrides:\n  - {workspace: acme, namespace: address, pattern: 203.0.113.0/24, limit: 0}\n")
	for _, args := range [][]string{{"apply", "-f", file}, {"override", "set", "acme", "address", "203.0.113.0/24", "--limit", "0"}} {
		if code := w.run(t, append(args, "--reason", "x")...); code != exitUsage || len(d.overrides) != 0 || !strings.Contains(w.stderr.String(), "203.0.113.0/24") {
			t.Errorf("%q: exit %d, %s", args, code, w.stderr.String())
		}
	}
}

// Before override set changes an override, it shows the current override.
func TestOverrideSetShowsWhatThereWas(t *testing.T) {
	w, _ := newDrawerWorld(t)
	if code := w.run(t, "override", "set", "acme", "api", "user_42", "--limit", "7", "--reason", "x"); code != exitOK || !strings.Contains(w.stderr.String(), "there is no override of exactly this pattern yet\n") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if code := w.run(t, "override", "set", "acme", "api", "user_42", "--limit", "9", "--reason", "x"); code != exitOK || !strings.Contains(w.stderr.String(), "before: limit 7, window of the request\n") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// A tuning for one region is compared with the tuning in force in that region, which can be its own or the fleet's.
func TestTuningSetShowsTheRegionsThatItChanges(t *testing.T) {
	for region, want := range map[string]string{
		"us": "us:\n  floor: 0.1 -> 0.3\n", // follows the fleet
		"eu": "eu:\n  floor: 0.5 -> 0.3\n",
	} {
		w := newWorld(t)
		w.inForce = []tunings.RegionTuning{{Version: 4, Document: controltest.Document()}, {Region: "eu", Version: 5, Document: controltest.Document("floor=0.5")}}
		from := map[string]string{"us": "fleet", "eu": "eu"}[region]
		args := []string{"tuning", "set", "--set", "floor=0.3", "--from", from, "--region", region, "--at-once", "--reason", "x", "--yes"}
		if code := w.run(t, args...); code != exitOK || w.stderr.String() != want {
			t.Errorf("%s: exit %d, %s; want %s", region, code, w.stderr.String(), want)
		}
	}
}
