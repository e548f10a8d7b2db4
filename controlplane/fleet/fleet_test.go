package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/shared/heartbeat"
)

type fleetRows struct {
	rows []Row
	err  error
}

func (f fleetRows) FleetNodes(_ context.Context, rows int) (time.Time, []Row, error) {
	return controltest.Day, f.rows[:min(rows, len(f.rows))], f.err
}

func TestListFleet(t *testing.T) {
	row := func(id string, age, skew time.Duration, health string) Row {
		seen := controltest.Day.Add(-age)
		return Row{Heartbeat: heartbeat.Heartbeat{NodeID: id, Region: "eu", SentAtMs: seen.Add(skew).UnixMilli()}, SeenAt: seen, Health: health}
	}
	fleet, err := List(t.Context(), fleetRows{rows: []Row{
		row("fresh", time.Second, 3*time.Millisecond, `{"allowed_total":7,"a_field_of_a_newer_build":{}}`),
		row("edge", 30*time.Second, -2*time.Second, `{}`),
		row("late", 30*time.Second+time.Millisecond, 0, `{}`),
		row("ahead", -5*time.Second, 0, `{}`),
		row("odd", 0, 0, `{"allowed_total":"many","denied_total":4}`),
		row("broken", 0, 0, `not JSON`),
	}}, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if !fleet.Now.Equal(controltest.Day) || fleet.Truncated || len(fleet.Nodes) != 6 {
		t.Fatalf("%+v", fleet)
	}
	for i, want := range []struct {
		live            bool
		age, skew       time.Duration
		allowed, denied int64
		problem         string
	}{
		{true, time.Second, 3 * time.Millisecond, 7, 0, ""},
		{true, 30 * time.Second, -2 * time.Second, 0, 0, ""},
		{false, 30*time.Second + time.Millisecond, 0, 0, 0, ""},
		{true, 0, 0, 0, 0, ""}, // the listing's clock was read before the heartbeat
		{true, 0, 0, 0, 4, "allowed_total"},
		{true, 0, 0, 0, 0, "health: invalid character"},
	} {
		n := fleet.Nodes[i]
		if n.Live != want.live || n.Age != want.age || n.ClockSkew != want.skew || n.Health.AllowedTotal != want.allowed || n.Health.DeniedTotal != want.denied {
			t.Errorf("%s: %+v; want %+v", n.NodeID, n, want)
		}
		if (n.HealthProblem == "") != (want.problem == "") || !strings.Contains(n.HealthProblem, want.problem) {
			t.Errorf("%s: problem %q, want %q", n.NodeID, n.HealthProblem, want.problem)
		}
	}
}

func TestListFleetIsBounded(t *testing.T) {
	fleet, err := List(t.Context(), fleetRows{rows: make([]Row, NodesMax+5)}, time.Minute)
	if err != nil || len(fleet.Nodes) != NodesMax || !fleet.Truncated {
		t.Errorf("%d nodes, truncated %v, %v", len(fleet.Nodes), fleet.Truncated, err)
	}
	lost := errors.New("connection lost")
	if _, err := List(t.Context(), fleetRows{err: lost}, time.Minute); !errors.Is(err, lost) || !strings.Contains(err.Error(), "list the fleet") {
		t.Errorf("error %v", err)
	}
}

type fleetRepair struct {
	fleetRows
	asked int
}

func (f *fleetRepair) SetNodesRight(context.Context, time.Duration) (int64, error) {
	f.asked++
	return 1, f.err
}

// Nothing is written if all heartbeats are in the past, or ahead by no more than a statement can take. If the fleet has
// more nodes than a listing, heartbeats are corrected, because the unlisted heartbeats may be ahead.
func TestHeartbeatsAreCorrectedOnlyAfterAStepBack(t *testing.T) {
	for name, c := range map[string]struct {
		ahead     time.Duration
		truncated bool
		want      int
	}{
		"past": {-time.Second, false, 0}, "within what a statement takes": {aheadMax, false, 0},
		"ahead": {aheadMax + time.Millisecond, false, 1}, "past, of a fleet that is cut off": {0, true, 1},
	} {
		f := Fleet{Now: controltest.Day, Nodes: []Node{{SeenAt: controltest.Day}, {SeenAt: controltest.Day.Add(c.ahead)}}, Truncated: c.truncated}
		store := &fleetRepair{}
		if _, err := SetRight(t.Context(), f, store); err != nil || store.asked != c.want {
			t.Errorf("%s: the store was asked %d times, %v; want %d", name, store.asked, err, c.want)
		}
	}
	refused := errors.New("UPDATE command denied")
	store := &fleetRepair{fleetRows: fleetRows{err: refused}}
	if _, err := SetRight(t.Context(), Fleet{Truncated: true}, store); !errors.Is(err, refused) ||
		!strings.Contains(err.Error(), "ahead of the database's clock") {
		t.Errorf("a store that refuses: %v", err)
	}
}
