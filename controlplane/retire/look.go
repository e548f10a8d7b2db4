package retire

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
)

// Look is the state of a table and the fleet at a moment.
type Look struct {
	Table  *TableFigures `json:"table"` // nil: no table has the name
	Dated  *TableFigures `json:"dated"`
	Health Health        `json:"health"`

	// Ended maps approvers whose approvals no longer count to the reason; see access.Approvers.
	Ended map[string]string `json:"ended,omitempty"`
}

// TableFigures are the figures of a table with the blocklist's columns.
type TableFigures struct {
	Rows int64     `json:"rows"` // counted up to TableRowsCounted
	Mark TableMark `json:"mark"`
}

// TableRowsCounted bounds how many rows are counted.
const TableRowsCounted = 100_000

// TableMark is a high-water mark of writes to a table. Deleting rows lowers it; only a write raises any of it. Each
// field shows writes that the others can miss, for example a row that was inserted and deleted, an update of an
// existing row, or a later expiry.
type TableMark struct {
	NextKey      int64 `json:"next_key"` // AUTO_INCREMENT, which writes of existing rows use up too
	LastKey      int64 `json:"last_key"`
	LastExpiryMs int64 `json:"last_expiry_ms"`
}

// Above reports whether the table was written since a mark.
func (m TableMark) Above(before TableMark) bool { return m.Max(before) != before }

// Max returns the higher value of each field.
func (m TableMark) Max(b TableMark) TableMark {
	return TableMark{max(m.NextKey, b.NextKey), max(m.LastKey, b.LastKey), max(m.LastExpiryMs, b.LastExpiryMs)}
}

// Health is whether counts are shared in every region. Shared counts replace the blocklist.
type Health struct {
	Regions int    `json:"regions"`
	Nodes   int    `json:"nodes"`             // live
	Problem string `json:"problem,omitempty"` // of a region or node; empty: healthy
}

// Evidence is the figures that a person needs to decide on an approval.
type Evidence struct {
	AtMs           int64 `json:"at_ms"`
	Rows           int64 `json:"rows"` // left in the table
	LastExpiryMs   int64 `json:"last_expiry_ms,omitempty"`
	QuietSinceMs   int64 `json:"quiet_since_ms"`
	HealthySinceMs int64 `json:"healthy_since_ms,omitempty"` // 0: not healthy
	Health
}

// JudgeCounts checks whether counts are shared. Every region that sent a heartbeat lately must have a live node, and a
// live node must relay each shard of its origin. Each relaying node must have published and read changes, without an
// error, within withinMs before its last heartbeat, both by the node's own clock.
func JudgeCounts(listing fleet.Fleet, withinMs int64) Health {
	var h Health
	var regions []string
	for _, n := range listing.Nodes {
		regions = append(regions, n.Region)
		if !n.Live {
			continue
		}
		h.Nodes++
		if h.Problem == "" {
			h.Problem = countsProblem(n, withinMs)
		}
	}
	slices.Sort(regions)
	regions = slices.Compact(regions)
	h.Regions = len(regions)
	for _, region := range regions {
		if h.Problem == "" {
			h.Problem = regionProblem(region, fleet.Select(listing.Nodes,
				func(n fleet.Node) bool { return n.Live && n.Region == region }))
		}
	}
	switch {
	case h.Nodes == 0 && h.Problem == "":
		h.Problem = "no node sends heartbeats"
	case listing.Truncated && h.Problem == "":
		h.Problem = fmt.Sprintf("there are more than %d nodes, and the rest were not checked", fleet.NodesMax)
	}
	h.Problem = controlplane.Cut(h.Problem, controlplane.ReasonBytesMax)
	return h
}

func countsProblem(n fleet.Node, withinMs int64) string {
	if !fleet.Relays(n) {
		return ""
	}
	switch age := n.SentAtMs - n.Health.Relay.InStepAtMs; {
	case n.Health.Relay.InStepAtMs == 0:
		return fmt.Sprintf("%s in %s has sent and read no changes yet", n.NodeID, n.Region)
	case -age > withinMs:
		return fmt.Sprintf("the clock of %s in %s was set back, and it has sent or read no changes since", n.NodeID, n.Region)
	case age > withinMs:
		return fmt.Sprintf("%s in %s has sent or read no changes for %s", n.NodeID, n.Region, milliseconds(age))
	}
	return ""
}

// regionProblem returns why a region with these live nodes does not share its counts, or "".
func regionProblem(region string, live []fleet.Node) string {
	if len(live) == 0 {
		return fmt.Sprintf("region %s has no live node", region)
	}
	by := fleet.RelayedBy(live)
	if by.Shards == 0 {
		return fmt.Sprintf("no node of region %s has a relay", region)
	}
	if missing := by.Missing(); len(missing) > 0 {
		return fmt.Sprintf("no node of region %s relays %s", region, fleet.ShardNames(missing))
	}
	return ""
}

// Record updates the metrics from the state of the retirement.
func (r *Retirement) Record(m *controlplane.Metrics) {
	waits := r.Phase == Awaiting || r.Phase == AwaitingFinal
	m.RetirementSeen(r.UnderWay(), waits, r.UnderWay() && r.Trouble != "")
}
