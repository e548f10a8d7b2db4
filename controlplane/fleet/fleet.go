package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// NodesMax bounds the nodes of a listing.
const NodesMax = 10_000

// Fleet is every node whose heartbeat is recent enough to still have a row.
type Fleet struct {
	Now       time.Time // by the clock of the database
	Nodes     []Node    // by region, then node id
	Left      []string  // IDs of nodes that were shut down in order, so their silence is no fault
	Truncated bool      // there are more than NodesMax
}

// Node is the newest heartbeat of a node, and when it arrived.
type Node struct {
	heartbeat.Heartbeat
	SeenAt time.Time     // by the clock of the database
	Age    time.Duration // since SeenAt
	Live   bool          // Age is within the bound

	// ClockSkew is the node's clock minus the database's at the newest heartbeat. It includes the time that the statement
	// took to arrive, so it reads a little low.
	ClockSkew time.Duration

	// HealthProblem describes health figures that could not be parsed; empty: there are none. The other figures are valid,
	// because a node of a newer build is just as alive.
	HealthProblem string

	Reported Reported
}

// Reported are optional figures of a heartbeat; nil: missing.
type Reported struct {
	// p99 of the age of changes when the node's relay reads them, of the slowest region; nil: it relays nothing, or read
	// none
	ConvergenceMs *float64 `json:"-"`
	LatencyUs     *float64 `json:"decision_p99_us"`
}

// Row is a stored heartbeat.
type Row struct {
	Heartbeat heartbeat.Heartbeat // without Health
	SeenAt    time.Time
	Health    string // JSON
	Left      bool   // the node was shut down in order; Heartbeat only has its ID and region
}

// Store reads heartbeats.
type Store interface {
	// FleetNodes returns at most rows heartbeats, by region and node ID, followed by the nodes that left lately, and the
	// time of the database's clock.
	FleetNodes(ctx context.Context, rows int) (now time.Time, nodes []Row, err error)
}

// List lists nodes. A node is live if its newest heartbeat is at most liveWithin old.
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

// aheadMax is how far a heartbeat can be ahead of the database's clock without a step of the clock: a statement reads
// the clock when it begins.
const aheadMax = 5 * time.Second

// Repair also corrects heartbeats.
type Repair interface {
	Store

	// SetNodesRight sets heartbeats that are more than max ahead of the database's clock to that clock, and returns how
	// many rows it has changed.
	SetNodesRight(ctx context.Context, max time.Duration) (int64, error)
}

// SetRight corrects a fleet's heartbeats after the database's clock has stepped back, for example in a failover. A
// heartbeat from before the step is ahead of the clock, so its node would count as live until the clock reaches it.
// After the correction it ages again, so a node that has died is silent after the usual time. Live nodes replace their
// heartbeats within seconds, so they do not look silent meanwhile. It returns the number of corrected heartbeats.
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

// ReadNode parses the row of a node.
func ReadNode(row Row, now time.Time, liveWithin time.Duration) Node {
	node := Node{Heartbeat: row.Heartbeat, SeenAt: row.SeenAt, Age: max(0, now.Sub(row.SeenAt))}
	node.Live = node.Age <= liveWithin
	node.ClockSkew = time.UnixMilli(row.Heartbeat.SentAtMs).Sub(row.SeenAt)
	node.Health, node.HealthProblem = readHealth(row.Health)
	_ = json.Unmarshal([]byte(row.Health), &node.Reported) // the error is in HealthProblem
	if ms, ok := node.Health.Relay.Lag(); ok {
		node.Reported.ConvergenceMs = new(float64(ms))
	}
	return node
}

// readHealth keeps every figure that it can parse. Builds add fields, and a field of an unexpected form spoils only
// itself.
func readHealth(document string) (h heartbeat.Health, problem string) {
	if err := json.Unmarshal([]byte(document), &h); err != nil {
		problem = "health: " + err.Error()
	}
	return h, problem
}
