package tunings

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/tuning"
)

// InForce returns the fleet's tuning, as region "", and then the tuning of each region with a tuning of its own, by
// region. Documents have every field. Version 0 is the default, if no tuning was rolled out to the fleet.
func InForce(ctx context.Context, newest func(context.Context) ([]RegionTuning, error)) ([]RegionTuning, error) {
	stored, err := newest(ctx)
	if err != nil {
		return nil, err
	}
	ofFleet := func(t RegionTuning) bool { return t.Region == "" }
	if !slices.ContainsFunc(stored, ofFleet) {
		stored = append(stored, RegionTuning{Document: "{}"})
	}
	inForce := make([]RegionTuning, 0, len(stored))
	for _, t := range stored {
		set, err := tuning.Read([]byte(t.Document)) // perhaps written by another build
		if err != nil {
			return nil, fmt.Errorf("read version %d of the tuning of region %q: %w", t.Version, t.Region, err)
		}
		whole, err := set.Document()
		if err != nil {
			return nil, err
		}
		inForce = append(inForce, RegionTuning{Region: t.Region, Version: t.Version, Document: string(whole)})
	}
	slices.SortFunc(inForce, func(a, b RegionTuning) int { return cmp.Compare(a.Region, b.Region) })
	return inForce, nil
}

// RegionTuning is the newest version of a region, or of the fleet if Region is "".
type RegionTuning struct {
	Region   string
	Version  int64
	Document string
}

// Write is a version to write.
type Write struct {
	ID       string `json:"id"` // of the write, unique for all time
	Region   string `json:"region"`
	Document string `json:"document"`
	controlplane.By

	// Over is the newest version of the region, or 0 if it has none. If another version has come since, nothing is
	// written. If several writes of a call are for the same region, each is over the write before.
	Over int64 `json:"over,omitempty"`
}

// Written is the outcome of writes: their versions, or the reason why none of them was made.
type Written struct {
	Versions []int64  `json:"versions,omitempty"`
	Refused  *Refusal `json:"refused,omitempty"`
}

// Refusal is the reason why a write was not made, and never will be.
type Refusal struct {
	ID     string `json:"id"` // of the write
	Region string `json:"region"`
	Newest int64  `json:"newest"` // version of the region, which stays
	// by a write of another document, or of another region; otherwise Newest is not Over
	IDTaken bool `json:"id_taken,omitempty"`
	// Conflict describes items that are no longer as before a change of limits.
	Conflict string `json:"conflict,omitempty"`
}

func (r Refusal) String() string {
	if r.Conflict != "" {
		return Edited(r.Conflict)
	}
	if r.IDTaken {
		return fmt.Sprintf("the id of write %s was used before, for another tuning: choose another id", r.ID)
	}
	return fmt.Sprintf("%s has version %d, which something else wrote meanwhile", controlplane.RowName(r.Region), r.Newest)
}

// RegionBytesMax bounds the name of a region, as its column does.
const RegionBytesMax = 48

// Over returns the reason why a write over a version was rejected.
func (r Refusal) Over(version int64) string {
	if r.IDTaken || r.Newest > version {
		return r.String()
	}
	return fmt.Sprintf("%s has version %d, which is older than version %d: MySQL was restored from an older copy",
		controlplane.RowName(r.Region), r.Newest, version)
}

// TrialWrite makes nodes of a region try a tuning, for as long as the trial is renewed.
type TrialWrite struct {
	ID       string `json:"id"` // of the write, unique for all time
	Region   string `json:"region"`
	Document string `json:"document"`
	Below    int64  `json:"below"` // nodes whose tuning.TrialShare is below it try the tuning

	// Over is the newest version of the region, or 0 if it has none. If another version has come since, nothing is
	// written, and nodes return to that version.
	Over    int64 `json:"over,omitempty"`
	LeaseMs int64 `json:"lease_ms,omitempty"`
}

// TrialsWritten is the outcome of writes: the numbers of the trials, or the reason why none of them was made.
type TrialsWritten struct {
	Numbers []int64  `json:"numbers,omitempty"`
	Refused *Refusal `json:"refused,omitempty"`
}

// TrialsRenewed is the outcome of a renewal. Ended reports whether at least one of the trials has ended, so that nodes
// do not run it any more.
type TrialsRenewed struct {
	Ended *TrialEnded `json:"ended,omitempty"`
}

// TrialEnded is the reason why a trial is over.
type TrialEnded struct {
	Region string `json:"region"`
	// version of the region that another write made; 0: the trial was not renewed in time
	Newer int64 `json:"newer,omitempty"`
	// Lost is the id of a write without a trial in MySQL, which was restored from an older copy.
	Lost string `json:"lost,omitempty"`
	// Conflict describes items that are no longer as before a change of limits.
	Conflict string `json:"conflict,omitempty"`
}

// Edited returns the reason why a change of limits cannot be made, or not be tried any more.
func Edited(conflict string) string {
	return "something else changed the limits meanwhile: " + conflict
}

func (e TrialEnded) String() string {
	if e.Conflict != "" {
		return Edited(e.Conflict)
	}
	if e.Lost != "" {
		return fmt.Sprintf("MySQL does not have the trial %s any more: it was restored from an older copy, and nodes return "+
			"to the settings that it has", e.Lost)
	}
	if e.Newer != 0 {
		return fmt.Sprintf("%s has version %d, which something else wrote meanwhile, and nodes run it",
			controlplane.RowName(e.Region), e.Newer)
	}
	return fmt.Sprintf("the trial of %s was not renewed in time, and nodes have returned to the stored settings",
		controlplane.RowName(e.Region))
}
