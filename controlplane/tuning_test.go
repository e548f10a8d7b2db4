package controlplane

import (
	"context"
	"errors"
	"testing"
)

// "The fleet's tuning, of region "", and then that of each region that has one of its own":
// every field present, whatever build has written it.
func TestTuningInForce(t *testing.T) {
	var stored []RegionTuning
	newest := func(context.Context) ([]RegionTuning, error) { return stored, nil }
	got, err := TuningInForce(t.Context(), newest)
	if err != nil || len(got) != 1 || got[0] != (RegionTuning{Document: defaultDocument()}) {
		t.Errorf("nothing was rolled out: %+v, %v", got, err)
	}
	stored = []RegionTuning{{Region: "us", Version: 3, Document: `{"floor":0.3}`}, {Region: "eu", Version: 4, Document: string(document30)}, {Version: 2, Document: "{}"}}
	got, err = TuningInForce(t.Context(), newest)
	want := []RegionTuning{{Version: 2, Document: defaultDocument()}, {Region: "eu", Version: 4, Document: string(document30)}, {Region: "us", Version: 3, Document: string(document30)}}
	if err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%+v, %v", got, err)
	}
	stored = []RegionTuning{{Region: "eu", Version: 9, Document: `{"requires":["of_a_newer_build"]}`}}
	if _, err := TuningInForce(t.Context(), newest); err == nil {
		t.Error("a document that cannot be read is edited")
	}
	down := func(context.Context) ([]RegionTuning, error) { return nil, ErrUnavailable }
	if _, err := TuningInForce(t.Context(), down); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
