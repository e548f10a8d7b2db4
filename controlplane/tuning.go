package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/shared/tuning"
)

// TuningInForce is the fleet's tuning, of region "", and then that of each region that has
// one of its own, by region. Documents have every field. Version 0 is the default, where
// none was rolled out to the fleet.
func TuningInForce(ctx context.Context, newest func(context.Context) ([]RegionTuning, error)) ([]RegionTuning, error) {
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
