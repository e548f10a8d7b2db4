package tunings

import (
	"context"
	"errors"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
)

// "The fleet's tuning, of region "", and then that of each region that has one of its own":
// every field present, whatever build has written it.
func TestTuningInForce(t *testing.T) {
	var stored []RegionTuning
	newest := func(context.Context) ([]RegionTuning, error) { return stored, nil }
	got, err := InForce(t.Context(), newest)
	if err != nil || len(got) != 1 || got[0] != (RegionTuning{Document: controltest.DefaultDocument()}) {
		t.Errorf("nothing was rolled out: %+v, %v", got, err)
	}
	stored = []RegionTuning{{Region: "us", Version: 3, Document: `{"floor":0.3}`}, {Region: "eu", Version: 4, Document: string(controltest.Document30)}, {Version: 2, Document: "{}"}}
	got, err = InForce(t.Context(), newest)
	want := []RegionTuning{{Version: 2, Document: controltest.DefaultDocument()}, {Region: "eu", Version: 4, Document: string(controltest.Document30)}, {Region: "us", Version: 3, Document: string(controltest.Document30)}}
	if err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%+v, %v", got, err)
	}
	stored = []RegionTuning{{Region: "eu", Version: 9, Document: `{"requires":["of_a_newer_build"]}`}}
	if _, err := InForce(t.Context(), newest); err == nil {
		t.Error("a document that cannot be read is edited")
	}
	down := func(context.Context) ([]RegionTuning, error) { return nil, controlplane.ErrUnavailable }
	if _, err := InForce(t.Context(), down); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
