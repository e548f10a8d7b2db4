package pulse

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

func beat(id string, startedMs, seenMs, allowed int64, live bool) *controlv1.Node {
	return &controlv1.Node{NodeId: id, Region: "eu", StartedAtMs: startedMs, SeenAtMs: seenMs, Live: live, Health: &controlv1.NodeHealth{AllowedTotal: allowed}}
}

// Rates are computed between heartbeats, whenever the fleet is read.
func TestRates(t *testing.T) {
	var fleet *controlv1.FleetResponse
	var down error
	asked := 0
	p := New(time.Now, func(context.Context) (*controlv1.FleetResponse, error) { asked++; return fleet, down })
	clock := time.UnixMilli(1_700_000_000_000)
	p.now = func() time.Time { return clock }
	for _, step := range []struct {
		name string
		node *controlv1.Node
		want float64
		none bool // no rate is available
	}{
		{"the first heartbeat", beat("a", 1, 10_000, 1000, true), 0, true},
		{"no newer one", beat("a", 1, 10_000, 1000, true), 0, true},
		{"5 s later", beat("a", 1, 15_000, 1500, true), 100, false},
		{"no newer one: the rate stays", beat("a", 1, 15_000, 1500, true), 100, false},
		{"nothing was decided", beat("a", 1, 20_000, 1500, true), 0, false},
		{"started anew, it counts from 0", beat("a", 2, 25_000, 50, true), 10, false},
		{"not heard of, it decides nothing that we know of", beat("a", 2, 25_000, 50, false), 0, true},
		{"it is back", beat("a", 2, 30_000, 100, true), 10, false},
		{"the clock of the database went back", beat("a", 2, 29_000, 120, true), 0, true},
	} {
		fleet = &controlv1.FleetResponse{Nodes: []*controlv1.Node{step.node}}
		clock = clock.Add(beatEvery)
		p.step(t.Context())
		got := p.last.Rates["a"]
		if got.Known == step.none || got.Allowed != step.want {
			t.Errorf("%s: %+v", step.name, got)
		}
	}
	points := len(p.points)
	down = errors.New("MySQL does not answer")
	clock = clock.Add(beatEvery)
	p.step(t.Context())
	if p.last.Problem != "MySQL does not answer" || p.last.Fleet == nil || len(p.points) != points {
		t.Errorf("an outage: %+v, %d points", p.last, len(p.points))
	}
	before := asked
	p.step(t.Context())
	if asked != before {
		t.Error("two beats at one moment ask twice")
	}
	fleet, down = &controlv1.FleetResponse{}, nil
	clock = clock.Add(beatEvery)
	p.step(t.Context())
	if len(p.newest) != 0 || len(p.before) != 0 || p.last.Problem != "" {
		t.Errorf("a node that has gone is remembered: %+v", p)
	}
	for range beatsKept + 5 {
		clock = clock.Add(beatEvery)
		p.step(t.Context())
	}
	if len(p.points) != beatsKept {
		t.Errorf("%d points are kept", len(p.points))
	}
}

// The history has a gap while the pulse did not run and while no rate of a region is available: no line crosses it.
func TestTheHistoryHasGaps(t *testing.T) {
	clock := time.UnixMilli(1_700_000_000_000)
	seen := int64(0)
	var down error
	live := true
	p := New(time.Now, func(context.Context) (*controlv1.FleetResponse, error) {
		return &controlv1.FleetResponse{Nodes: []*controlv1.Node{beat("a", 1, seen, seen/10, live)}}, down
	})
	p.now = func() time.Time { return clock }
	step := func(after time.Duration) {
		clock, seen = clock.Add(after), seen+after.Milliseconds()
		p.step(t.Context())
	}
	step(beatEvery)
	step(beatEvery)
	down = errors.New("MySQL does not answer")
	for range 5 {
		step(beatEvery)
	}
	down = nil
	step(beatEvery)
	step(10 * time.Minute) // without a viewer the pulse does not run
	live = false
	step(beatEvery)
	var got []string
	for _, point := range p.points {
		switch {
		case point.Regions == nil:
			got = append(got, "gap")
		case point.Regions["eu"].Known:
			got = append(got, "known")
		default:
			got = append(got, "unknown")
		}
	}
	if want := "unknown known gap known gap known unknown"; strings.Join(got, " ") != want {
		t.Errorf("the history is %q, want %q", strings.Join(got, " "), want)
	}
}
