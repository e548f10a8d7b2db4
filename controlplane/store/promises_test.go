package store

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/servers"
)

// The promise that was kept first stays; the newest come first; one that another build wrote is left out if it cannot
// be read.
func TestPromises(t *testing.T) { servers.EachSQL(t, testPromises) }

func testPromises(t *testing.T) {
	s, db := migrated(t)
	for i := range 4 {
		for _, measured := range []float64{200, 900} {
			err := s.KeepPromise(t.Context(), controlplane.Promise{Rollout: fmt.Sprint("r", i), EndedMs: int64(10 - i),
				Rows: &controlplane.PromiseFit{Promised: float64(i), Measured: measured}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE ratelimit_rollout_promises SET figures = '[1]' WHERE id = 'r1'`); err != nil {
		t.Fatal(err)
	}
	kept, err := s.Promises(t.Context(), 3)
	if err != nil || len(kept) != 2 || kept[0].Rollout != "r0" || kept[0].EndedMs != 10 || kept[1].Rollout != "r2" ||
		*kept[1].Rows != (controlplane.PromiseFit{Promised: 2, Measured: 200}) || kept[1].Delay != nil {
		t.Errorf("%+v, %v", kept, err)
	}
}
