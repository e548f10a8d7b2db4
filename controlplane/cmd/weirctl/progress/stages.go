package progress

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// WriteStages prints the stages. Only those of a rollout of limits have a mode.
func WriteStages(w io.Writer, r *controlv1.Rollout) {
	const mode = 3
	t := format.NewTable(w)
	row := func(cells ...string) {
		if r.GetLimits() == nil {
			cells = slices.Delete(cells, mode, mode+1)
		}
		t.Row(cells...)
	}
	row("STAGE", "REGIONS", "BAKE", "MODE", "APPROVAL", "STATE")
	for i, s := range r.GetStages() {
		decides := "enforce"
		if s.GetShadow() {
			decides = "shadow"
		}
		row(fmt.Sprint(i+1), regions(s), format.Span(s.GetBakeMs()), decides, format.Yes(s.GetApproval()), stageState(r, s))
	}
	t.Flush()
}

// stageState returns the state of a stage. After a rollback no stage is active, and none waits.
func stageState(r *controlv1.Rollout, s *controlv1.RolloutProgress) string {
	switch {
	case r.GetEndedAtMs() == 0 || r.GetPhase() == "done":
		return s.GetState()
	case s.GetState() == "waiting":
		return "not begun"
	}
	return "ended"
}

// regions lists the regions of a stage, and the part of their nodes unless it is all.
func regions(s *controlv1.RolloutProgress) string {
	switch n := s.GetNodes(); {
	case n > 0:
		return format.Plural(int64(n), "node") + " of " + regionNames(s)
	case s.GetNodesPercent()%100 > 0:
		return fmt.Sprintf("%d%% of the nodes of %s", s.GetNodesPercent(), regionNames(s))
	}
	return regionNames(s)
}

func regionNames(s *controlv1.RolloutProgress) string {
	names := strings.Join(s.GetRegions(), ", ")
	switch {
	case s.GetRest() && names != "":
		return names + " and regions to come"
	case s.GetRest():
		return "regions to come"
	}
	return names
}

// Parts lists the number of nodes that run the tuning, for regions in which only a part runs it.
func Parts(r *controlv1.Rollout) string {
	var all []string
	for _, of := range r.GetRegions() {
		if of.GetPart() && of.GetNodesLive() > 0 {
			all = append(all, fmt.Sprintf("%s of %s of %s", format.Digits(int64(of.GetNodesExpected())),
				format.Plural(int64(of.GetNodesLive()), "node"), of.GetRegion()))
		}
	}
	return strings.Join(all, ", ")
}
