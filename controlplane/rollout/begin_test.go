package rollout

import (
	"testing"

	"github.com/weirhq/weir/controlplane"
)

// The history has a forced start with the critical health that was overridden. A start of a healthy fleet adds nothing.
func TestAForcedStartIsInTheHistory(t *testing.T) {
	for forced, want := range map[string]string{
		"":                                "start: fewer rows\n",
		"region_dark eu: No node is live": "start: fewer rows\nforced: the health of the fleet was critical: region_dark eu: No node is live\n",
	} {
		var r Rollout
		begin := Begin{Spec: spec(canary, all), By: controlplane.By{Actor: "ann", Reason: "fewer rows"}, Regions: []string{"eu", "us"}, Forced: forced}
		if _, fresh, err := r.Begin(newInLand(newLand()).on, "r1", begin); err != nil || !fresh || r.Forced != forced {
			t.Fatalf("%q, %t, %v", r.Forced, fresh, err)
		}
		got := ""
		for _, e := range r.Events {
			got += e.What + ": " + e.Text + "\n"
			if e.Actor != "ann" {
				t.Errorf("by %s", e.Actor)
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
