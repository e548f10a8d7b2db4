package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// NodesMax is the most nodes that one listing holds.
const NodesMax = 10_000

// Fleet is every node that was heard of lately enough to have a row.
type Fleet struct {
	Now       time.Time // by the clock of the database
	Nodes     []Node    // by region, then node id
	Left      []string  // IDs of nodes that have left the fleet in order, so their silence is no fault
	Truncated bool      // there are more than NodesMax
}

// Node is what a node last said of itself, and when.
type Node struct {
	heartbeat.Heartbeat
	SeenAt time.Time     // by the clock of the database
	Age    time.Duration // since SeenAt
	Live   bool          // Age is within the bound

	// ClockSkew is the node's clock minus the database's when it last spoke. It
	// contains the time the statement took to arrive, so it reads a little low.
	ClockSkew time.Duration

	// HealthProblem tells what of the health figures could not be read, empty for
	// nothing. The others are there all the same: a node of a newer build is no
	// less alive.
	HealthProblem string

	Reported Reported
}

// Reported are figures that not every heartbeat has: nil where they are not there.
type Reported struct {
	// p99 of the age of news when the node's relay read it, of the slowest region; nil: it relays nothing, or read none
	ConvergenceMs *float64 `json:"-"`
	LatencyUs     *float64 `json:"decision_p99_us"`
}

// Row is a heartbeat as it is stored.
type Row struct {
	Heartbeat heartbeat.Heartbeat // without Health
	SeenAt    time.Time
	Health    string // JSON
	Left      bool   // the node has left the fleet in order; Heartbeat only has its ID and region
}

// Store reads heartbeats.
type Store interface {
	// FleetNodes returns at most rows heartbeats, by region and node ID, followed by the nodes that
	// left lately, and the database's clock.
	FleetNodes(ctx context.Context, rows int) (now time.Time, nodes []Row, err error)
}

// List lists nodes. One that was heard of within liveWithin is live.
func List(ctx context.Context, store Store, liveWithin time.Duration) (Fleet, error) {
	now, rows, err := store.FleetNodes(ctx, NodesMax+1)
	if err != nil {
		return Fleet{}, fmt.Errorf("list the fleet: %w", err)
	}
	fleet := Fleet{Now: now}
	for _, row := range rows {
		switch {
		case row.Left:
			fleet.Left = append(fleet.Left, row.Heartbeat.NodeID)
		case len(fleet.Nodes) == NodesMax:
			fleet.Truncated = true
		default:
			fleet.Nodes = append(fleet.Nodes, ReadNode(row, now, liveWithin))
		}
	}
	return fleet, nil
}

// aheadMax is how far a heartbeat may be ahead of the clock of the database: a statement reads the clock when it
// begins.
const aheadMax = 5 * time.Second

// Repair also corrects heartbeats.
type Repair interface {
	Store

	// SetNodesRight dates heartbeats that are more than max ahead of the database's clock by that clock, and returns how
	// many it has changed.
	SetNodesRight(ctx context.Context, max time.Duration) (int64, error)
}

// SetRight corrects a fleet's heartbeats after the database's clock has stepped back, such as by a failover. A
// heartbeat from before the step is ahead of the clock, and the node that sent it would count as live until the clock
// reaches it. From now on it ages again, so a node that has died is silent after the usual time. Live nodes replace
// theirs within seconds, so none of them looks silent meanwhile. It returns how many it has corrected.
func SetRight(ctx context.Context, fleet Fleet, store Repair) (int64, error) {
	ahead := func(n Node) bool { return n.SeenAt.Sub(fleet.Now) > aheadMax }
	if !fleet.Truncated && !slices.ContainsFunc(fleet.Nodes, ahead) {
		return 0, nil
	}
	nodes, err := store.SetNodesRight(ctx, aheadMax)
	if err != nil {
		return 0, fmt.Errorf("correct heartbeats that are ahead of the database's clock: %w", err)
	}
	return nodes, nil
}

// ReadNode reads the row of a node.
func ReadNode(row Row, now time.Time, liveWithin time.Duration) Node {
	node := Node{Heartbeat: row.Heartbeat, SeenAt: row.SeenAt, Age: max(0, now.Sub(row.SeenAt))}
	node.Live = node.Age <= liveWithin
	node.ClockSkew = time.UnixMilli(row.Heartbeat.SentAtMs).Sub(row.SeenAt)
	node.Health, node.HealthProblem = readHealth(row.Health)
	_ = json.Unmarshal([]byte(row.Health), &node.Reported) // what spoils it is told above
	if ms, ok := node.Health.Relay.Lag(); ok {
		node.Reported.ConvergenceMs = new(float64(ms))
	}
	return node
}

// readHealth keeps every figure it understands. Builds add fields, and a field of
// an unexpected form spoils only itself.
func readHealth(document string) (h heartbeat.Health, problem string) {
	if err := json.Unmarshal([]byte(document), &h); err != nil {
		problem = "health: " + err.Error()
	}
	return h, problem
}
