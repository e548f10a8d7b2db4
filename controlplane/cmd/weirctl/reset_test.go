package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/workspaces"
)

func TestResetCommands(t *testing.T) {
	w := newWorld(t)
	node := func(id string, live bool, resetAt time.Time) fleet.Node {
		return fleet.Node{Live: live, Heartbeat: heartbeat.Heartbeat{NodeID: id, Region: "eu", Health: heartbeat.Health{ResetAtMs: resetAt.UnixMilli()}}}
	}
	w.fleet = fleet.Fleet{Nodes: []fleet.Node{node("a", true, now), node("b", true, now.Add(time.Second)), node("dead", false, time.UnixMilli(0))}}
	reset := []string{"reset", "acme", "api", "u1", "--reason", "ticket 7", "--longest-duration", "1h", "--watch", "--yes"}
	w.want(t, w.run(t, reset...), exitOK, "reset, generation 2; nodes have it within two settings_interval_ms, about 10s unless tuned\n2 of 2 nodes that are live have it\n")
	if r := w.shelf.reset; r.Identifier != "u1" || r.ExpiresAt != now.Add(2*time.Hour) || w.shelf.by.Reason != "ticket 7" {
		t.Errorf("%+v by %+v", r, w.shelf.by)
	}
	w.want(t, w.run(t, "resets", "acme", "api"), exitOK, `
IDENTIFIER  GENERATION  SET                   FORGOTTEN
u1          2           2026-01-02 15:04:05Z  2026-01-02 17:04:05Z
`)

	// A node that does not have it is named.
	w.fleet.Nodes = append(w.fleet.Nodes, node("late", true, now.Add(-time.Second)))
	if code := w.run(t, append(reset, "--timeout", "1s")...); code != exitFailure || !strings.Contains(w.stderr.String(), "late") {
		t.Errorf("exit %d: %s", code, w.stderr.String())
	}
	if !strings.HasSuffix(w.stdout.String(), "2 of 3 nodes that are live have it\n") {
		t.Errorf("stdout %s", w.stdout.String())
	}
	if code := w.run(t, "reset", "acme", "api", "u1"); code != exitUsage {
		t.Errorf("without a reason: exit %d", code)
	}
}

// A token with workspaces may reset a key and may not see the fleet: --watch is refused before the reset, so that the
// command never ends as refused after it has done its work.
func TestAResetIsNotMadeWhereItsWatchIsRefused(t *testing.T) {
	w := newGuardedWorld(t)
	w.shelf.secret = "weir_s3cret"
	t.Setenv("WEIR_TOKEN", "weir_s3cret")
	valid, err := workspaces.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	w.shelf.valid = valid
	reset := []string{"reset", "acme", "api", "u1", "--reason", "ticket 7", "--yes"}
	if code := w.run(t, append(reset, "--watch")...); code != exitFailure || w.shelf.reset.Identifier != "" ||
		!strings.Contains(w.stderr.String(), "nothing was reset") || !strings.Contains(w.stderr.String(), "without --watch") {
		t.Errorf("exit %d, reset %+v: %s", code, w.shelf.reset, w.stderr.String())
	}
	if code := w.run(t, reset...); code != exitOK || w.shelf.reset.Identifier != "u1" {
		t.Errorf("without --watch: exit %d, reset %+v: %s", code, w.shelf.reset, w.stderr.String())
	}
}
