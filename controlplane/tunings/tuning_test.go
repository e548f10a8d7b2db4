package tunings

import (
	"context"
	"errors"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
)

// "The fleet's tuning, as region "", and then the tuning of each region with a tuning of its own": every field is
// present, whichever build wrote the document.
func TestTuningInForce(t *testing.T) {
	var stored []RegionTuning
	newest := func(context.Context) ([]RegionTuning, error) { return stored, nil }
	got, err := InForce(t.Context(), newest)
	if err != nil || len(got) != 1 || got[0] != (RegionTuning{Document: controltest.Document()}) {
		t.Errorf("nothing was rolled out: %+v, %v", got, err)
	}
	stored = []RegionTuning{{Region: "us", Version: 3, Document: `{"floor":0.3}`}, {Region: "eu", Version: 4, Document: controltest.Document("floor=0.3")}, {Version: 2, Document: "{}"}}
	got, err = InForce(t.Context(), newest)
	want := []RegionTuning{{Version: 2, Document: controltest.Document()}, {Region: "eu", Version: 4, Document: controltest.Document("floor=0.3")}, {Region: "us", Version: 3, Document: controltest.Document("floor=0.3")}}
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
