package console

import (
	"testing"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// A retirement can be started if no other is under way and the table still exists: not while another runs, nor after
// another has dropped the table.
func TestARetirementIsOfferedWhileThereIsATable(t *testing.T) {
	for phase, want := range map[string]bool{"observing": false, "awaiting_final_approval": false, "aborted": true, "dropped": false} {
		r := &controlv1.Retirement{Phase: phase}
		if phase == "aborted" || phase == "dropped" {
			r.EndedAtMs = 1
		}
		if v := describeRetirement(r, time.Now()); v.Startable != want {
			t.Errorf("%s: a start is offered: %v", phase, v.Startable)
		}
	}
}
