package plan

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/tuning"
)

// StageNodes is the number or the share of a region's nodes that run the tuning in a stage, including nodes of earlier
// stages. At most one of the fields can be set; the zero value means all nodes. For example, NodesPercent: 10 takes in
// 3 of 25 nodes.
//
// Nodes are chosen by tuning.TrialShare, a hash of their IDs: when the stage's baseline begins, the stage gets the
// lowest bound below which enough of the live nodes are. A node that joins later runs the tuning if its hash is below
// the bound.
type StageNodes struct {
	NodesPercent int `json:"nodes_percent,omitempty"` // 1 to 100, rounded up to whole nodes
	Nodes        int `json:"nodes,omitempty"`         // 1 to fleet.NodesMax; a region with fewer nodes takes in all
}

// Validate reports the first field outside its bounds.
func (s StageNodes) Validate() error {
	switch {
	case s.NodesPercent != 0 && s.Nodes != 0:
		return fmt.Errorf("%w: nodes_percent is %d and nodes is %d: at most one of them may be set", controlplane.ErrInvalid,
			s.NodesPercent,
			s.Nodes)
	case s.NodesPercent < 0 || s.NodesPercent > 100:
		return fmt.Errorf("%w: nodes_percent is %d (1 to 100)", controlplane.ErrInvalid, s.NodesPercent)
	case s.Nodes < 0 || s.Nodes > fleet.NodesMax:
		return fmt.Errorf("%w: nodes is %d (1 to %d)", controlplane.ErrInvalid, s.Nodes, fleet.NodesMax)
	}
	return nil
}

// All reports whether the stage takes in all nodes of a region.
func (s StageNodes) All() bool { return s.Nodes == 0 && (s.NodesPercent == 0 || s.NodesPercent == 100) }

func (s StageNodes) String() string {
	switch {
	case s.All():
		return "all nodes"
	case s.Nodes > 0:
		return controlplane.CountOf(s.Nodes, "node", "nodes")
	}
	return fmt.Sprintf("%d%% of the nodes", s.NodesPercent)
}

// more reports whether s may take in nodes that another share does not. A number and a percentage can only be compared
// once the nodes are counted, so for them it returns true.
func (s StageNodes) more(than StageNodes) bool {
	switch {
	case s.All() || than.All():
		return !than.All()
	case s.Nodes > 0 && than.Nodes > 0:
		return s.Nodes > than.Nodes
	case s.NodesPercent > 0 && than.NodesPercent > 0:
		return s.NodesPercent > than.NodesPercent
	}
	return true
}

// Below returns the least trial bound that takes in this share of the nodes. Without nodes it returns the percentage of
// all shares, or 1 for a number of nodes.
func (s StageNodes) Below(nodes []fleet.NodeFigures) int64 {
	want := s.Nodes
	if s.NodesPercent > 0 {
		want = (len(nodes)*s.NodesPercent + 99) / 100
	}
	switch {
	case s.All():
		return tuning.TrialShares
	case len(nodes) == 0 && s.Nodes > 0:
		return 1
	case len(nodes) == 0:
		return tuning.TrialShares / 100 * int64(s.NodesPercent)
	case want > len(nodes):
		return tuning.TrialShares
	}
	shares := make([]int64, len(nodes))
	for i, n := range nodes {
		shares[i] = tuning.TrialShare(n.ID)
	}
	slices.Sort(shares)
	return shares[want-1] + 1
}
