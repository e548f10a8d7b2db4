package retire

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
)

// Look is how a table and the fleet are at one moment.
type Look struct {
	Table  *TableFigures `json:"table"` // nil: nothing has the name
	Dated  *TableFigures `json:"dated"`
	Health Health        `json:"health"`

	// Ended are those of the approvers whose approvals do not count any more, each with the reason; see access.Approvers.
	Ended map[string]string `json:"ended,omitempty"`
}

// TableFigures are of a table of the blocklist's form.
type TableFigures struct {
	Rows int64     `json:"rows"` // counted to TableRowsCounted
	Mark TableMark `json:"mark"`
}

// TableRowsCounted is where counting rows ends: the rest is "more".
const TableRowsCounted = 100_000

// TableMark is how far a table has been written. Deleting rows lowers it; only a write
// raises any of it. Each shows writes that the others may not: a row that came and went,
// one that was there already, and one that was given a later end.
type TableMark struct {
	NextKey      int64 `json:"next_key"` // of AUTO_INCREMENT, which writes of rows that are there use up too
	LastKey      int64 `json:"last_key"`
	LastExpiryMs int64 `json:"last_expiry_ms"`
}

// Above tells whether something was written since a mark.
func (m TableMark) Above(before TableMark) bool { return m.Max(before) != before }

// Max is the higher of both in everything.
func (m TableMark) Max(b TableMark) TableMark {
	return TableMark{max(m.NextKey, b.NextKey), max(m.LastKey, b.LastKey), max(m.LastExpiryMs, b.LastExpiryMs)}
}

// Health is whether counts are shared in every region: what a blocklist was for.
type Health struct {
	Regions int    `json:"regions"`
	Nodes   int    `json:"nodes"`             // live
	Problem string `json:"problem,omitempty"` // of one region or node; empty: healthy
}

// Evidence is what a person decides by.
type Evidence struct {
	AtMs           int64 `json:"at_ms"`
	Rows           int64 `json:"rows"` // left
	LastExpiryMs   int64 `json:"last_expiry_ms,omitempty"`
	QuietSinceMs   int64 `json:"quiet_since_ms"`
	HealthySinceMs int64 `json:"healthy_since_ms,omitempty"` // 0: it is not
	Health
}

// JudgeCounts tells whether every region that was heard of lately has a live node, each shard
// of its origin a node that relays it, and each such node has told and read news, without an
// error, within withinMs before its last heartbeat. Both times are by the node's own clock.
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

// regionProblem is why a region with these live nodes does not share its counts.
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

// Record records in the metrics how the retirement stands.
func (r *Retirement) Record(m *controlplane.Metrics) {
	waits := r.Phase == Awaiting || r.Phase == AwaitingFinal
	m.RetirementSeen(r.UnderWay(), waits, r.UnderWay() && r.Trouble != "")
}
