package relay_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
)

// A load that fails reads all that is stored, so it is not tried at every interval; and soon enough once it can work.
func TestALoadThatFailsPauses(t *testing.T) {
	w := newWorld(t, "eu", "us")
	eu, us := w.regions[0], w.regions[1]
	imports := 0
	w.counts.Faults.Hook(func(op memstore.Op) error {
		imports++
		return errDown
	})
	c := eu.cell("k", time.Hour)
	eu.accept(c, 50, 100)
	w.run(time.Minute)
	if most := 2 * (2 + 4 + 60/8); imports > most || imports < 6 {
		t.Errorf("two relays tried to import %d times in a minute, want at most %d", imports, most)
	}
	if f := eu.relay.Figures(); f.InStepAt.After(w.now.Add(-50 * time.Second)) {
		t.Errorf("eu says that it was in step at %v, and it is %v", f.InStepAt, w.now)
	}
	w.counts.Faults.Hook(nil)
	w.run(9 * time.Second)
	if got := us.total(c).Foreign; got != 50 {
		t.Errorf("us knows %d of 50", got)
	}
}
