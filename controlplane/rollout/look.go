package rollout

import (
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
)

// Applied is how far nodes have taken up a tuning.
type Applied struct {
	Live    int // of those that are to run it
	Applied int
	Waiting string // one node that has not, and what it says
}

func (a Applied) String() string {
	return fmt.Sprintf("%d of %d live nodes have applied it; %s", a.Applied, a.Live, a.Waiting)
}

// lag says what a node runs that does not run what was written for its region; empty: it does.
func (t Touched) lag(n fleet.NodeFigures, hash string) string {
	want := fleet.NodeFigures{Version: t.Applied, Trial: t.Trial}
	if t.Applied > 0 {
		want.Trial = 0
	}
	switch {
	case n.Trial != want.Trial || n.Trial == 0 && n.Version != want.Version:
		return n.Runs() + ", not " + want.Runs()
	case n.Hash != hash:
		return fmt.Sprintf("%s with the hash %q, not %q", n.Runs(), n.Hash, hash)
	}
	return ""
}

// Touches are the regions that have, or may have, the tuning of a rollout, in the order in which they got it.
type Touches []Touched

// of is what was written for a region: regions that have nothing of their own follow the fleet's.
func (ts Touches) of(region string) (of Touched, ok bool) {
	for _, row := range []string{region, ""} {
		i := slices.IndexFunc(ts, func(t Touched) bool { return t.Region == row })
		if i >= 0 {
			return ts[i], true
		}
	}
	return Touched{}, false
}

// scope is every region that the rollout has, or may have, written.
func (ts Touches) scope() (scope fleet.Scope) {
	for _, t := range ts {
		if t.Region == "" {
			return fleet.Scope{Rest: true}
		}
		scope.Regions = append(scope.Regions, t.Region)
	}
	return scope
}

// rows are the regions, "" being the fleet's row.
func (ts Touches) rows() (regions []string) {
	for _, t := range ts {
		regions = append(regions, t.Region)
	}
	return regions
}

// applied tells how far the nodes of a scope run what the rollout wrote: those very trials, or versions, with that
// document, as a newer one is something else's. Nodes that are not to run it by their share do not count.
func (ts Touches) applied(look fleet.Look, scope fleet.Scope, document string) (a Applied) {
	hash := tunings.HashOf(document)
	for _, n := range look.Nodes {
		want, _ := ts.of(n.Region)
		if !scope.Has(n.Region) || !want.expects(n.ID) {
			continue
		}
		a.Live++
		switch lag := want.lag(n, hash); {
		case lag == "":
			a.Applied++
		case a.Waiting == "" || n.Problem != "":
			a.Waiting = fmt.Sprintf("%s in %s runs %s", n.ID, n.Region, lag) + n.ProblemSuffix()
		}
	}
	return a
}
