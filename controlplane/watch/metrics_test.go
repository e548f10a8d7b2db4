package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/shared/heartbeat"
)

// "Nodes by region and state", the largest skew "in either direction" of live nodes, and no series of a region that is
// gone.
func TestFleetMetrics(t *testing.T) {
	m := NewMetrics()
	m.FleetSeen(fleet.Fleet{Nodes: []fleet.Node{{Heartbeat: heartbeat.Heartbeat{Region: "gone"}, Live: true}}})
	m.FleetSeen(fleet.Fleet{Nodes: []fleet.Node{
		{Heartbeat: heartbeat.Heartbeat{Region: "eu", TuningVersion: 1}, Live: true, ClockSkew: -3 * time.Second},
		{Heartbeat: heartbeat.Heartbeat{Region: "eu", TuningVersion: 2}, Live: true, ClockSkew: time.Second},
		{Heartbeat: heartbeat.Heartbeat{Region: "eu", TuningVersion: 9}, ClockSkew: time.Hour},
		{Heartbeat: heartbeat.Heartbeat{Region: "us", TuningVersion: 7}},
	}})
	want := `
		# HELP weir_fleet_clock_skew_seconds Largest difference between the clock of a region's live node and the database's, in either direction.
		# TYPE weir_fleet_clock_skew_seconds gauge
		weir_fleet_clock_skew_seconds{region="eu"} 3
		# HELP weir_fleet_nodes Nodes by region and state: live, or silent without a recent heartbeat. A node that was stopped in order is neither.
		# TYPE weir_fleet_nodes gauge
		weir_fleet_nodes{region="eu",state="live"} 2
		weir_fleet_nodes{region="eu",state="silent"} 1
		weir_fleet_nodes{region="us",state="live"} 0
		weir_fleet_nodes{region="us",state="silent"} 1
		# HELP weir_fleet_tuning_versions Different versions of the tuning that live nodes run.
		# TYPE weir_fleet_tuning_versions gauge
		weir_fleet_tuning_versions 2
	`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "weir_fleet_nodes", "weir_fleet_clock_skew_seconds", "weir_fleet_tuning_versions"); err != nil {
		t.Error(err)
	}
}

// A region's name is any bytes in a heartbeat, but a label must be UTF-8. A node with an invalid name is counted, and
// does no harm.
func TestFleetMetricsOfStrangeRegions(t *testing.T) {
	m := NewMetrics()
	m.FleetSeen(fleet.Fleet{Nodes: []fleet.Node{
		{Heartbeat: heartbeat.Heartbeat{Region: "\xff"}, Live: true, ClockSkew: time.Second},
		{Heartbeat: heartbeat.Heartbeat{Region: "\xfe"}, Live: true, ClockSkew: time.Minute},
		{Heartbeat: heartbeat.Heartbeat{Region: "eu\n\"<script>"}, Live: true},
	}})
	want := "# HELP weir_fleet_clock_skew_seconds Largest difference between the clock of a region's live node and the database's, in either direction.\n" +
		"# TYPE weir_fleet_clock_skew_seconds gauge\n" +
		"weir_fleet_clock_skew_seconds{region=\"\uFFFD\"} 60\n" +
		"weir_fleet_clock_skew_seconds{region=\"eu\\n\\\"<script>\"} 0\n"
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "weir_fleet_clock_skew_seconds"); err != nil {
		t.Error(err)
	}
	if live := testutil.ToFloat64(m.nodes.WithLabelValues("\uFFFD", "live")); live != 2 {
		t.Errorf("%v nodes of strange regions, want 2", live)
	}
}

// "1 for the phase of the rollout that is under way", and all at 0 without one.
func TestRolloutMetrics(t *testing.T) {
	m := NewMetrics()
	for _, step := range []struct {
		rollout         *rollout.Rollout
		baking, trouble float64
	}{
		{nil, 0, 0},
		{&rollout.Rollout{Phase: rollout.Baking}, 1, 0},
		{&rollout.Rollout{Phase: rollout.Baking, Trouble: "MySQL does not answer"}, 1, 1},
		{&rollout.Rollout{Phase: rollout.Done, Trouble: "of long ago"}, 0, 0},
		{nil, 0, 0},
	} {
		m.RolloutSeen(step.rollout)
		if baking, trouble := testutil.ToFloat64(m.rolloutPhase.WithLabelValues("baking")), testutil.ToFloat64(m.rolloutTrouble); baking != step.baking || trouble != step.trouble {
			t.Errorf("%+v: baking %v, trouble %v; want %v, %v", step.rollout, baking, trouble, step.baking, step.trouble)
		}
	}
	if n := testutil.CollectAndCount(m, "weir_rollout_phase"); n != 7 {
		t.Errorf("%d phases, want 7", n)
	}
}
