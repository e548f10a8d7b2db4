package plan

import (
	"maps"
	"slices"

	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// TuningDifference is a difference between the tuning in a document and the tuning that a region runs.
type TuningDifference struct {
	Region  string             `json:"region"` // "fleet" for all regions without their own tuning
	Changes []limitchange.Pair `json:"changes"`
	Command string             `json:"command"` // command that rolls the tuning out
}

// TuningDifferences compares the tunings in a document with the tunings in force. A document with the fleet's tuning is
// compared for all regions, other documents only for the regions that they name.
func TuningDifferences(d *settings.Document, inForce []*controlv1.RegionTuning) (found []TuningDifference, err error) {
	if len(inForce) == 0 { // the token must not see the tuning
		return nil, nil
	}
	running := make(map[string]tuning.Tuning)
	for _, t := range inForce {
		if running[t.GetRegion()], err = tuning.Read([]byte(t.GetDocument())); err != nil {
			return nil, err
		}
	}
	regions := slices.Collect(maps.Keys(d.RegionTuning))
	if d.Tuning != nil {
		regions = slices.AppendSeq(regions, maps.Keys(running))
	}
	slices.Sort(regions)
	for _, region := range slices.Compact(regions) {
		from := region
		if _, own := running[region]; !own {
			from = ""
		}
		changes, err := tuning.Diff(running[from], d.TuningOf(region))
		if err != nil {
			return nil, err
		}
		if len(changes) > 0 {
			found = append(found, DifferenceOf(region, from, changes))
		}
	}
	return found, nil
}

// DifferenceOf returns the difference of one region.
func DifferenceOf(region, from string, changes []tuning.Change) TuningDifference {
	t := TuningDifference{Region: OrFleet(region), Command: "weirctl rollout start --from " + OrFleet(from)}
	for _, c := range changes {
		t.Changes = append(t.Changes, limitchange.Pair(c))
		t.Command += " --set " + c.Field + "=" + c.To
	}
	stage := region
	if region == "" {
		stage = "all"
	}
	t.Command += " --stage " + stage
	return t
}

// FleetName is the name of the region "" on the command line.
const FleetName = "fleet"

// OrFleet returns a region's name on the command line.
func OrFleet(region string) string {
	if region == "" {
		return FleetName
	}
	return region
}
