package relay_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// A failed load is not tried again at every interval, because each load reads all stored rows. It succeeds soon after
// its stores are back.
func TestALoadThatFailsPauses(t *testing.T) {
	w, eu, us := newPair(t)
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

// A load that finds its row's number taken does not pause. Another relay writes, and the lease decides which of the two
// goes on, so the load is tried at every interval.
func TestALoadThatIsOvertakenDoesNotPause(t *testing.T) {
	w := newWorld(t, "us")
	taken := 5
	w.feed.Faults.Hook(func(op memstore.Op) error {
		if op != memstore.OpAppend || taken == 0 {
			return nil
		}
		taken--
		return store.ErrTaken
	})
	w.run(6 * interval)
	if f := w.regions[0].relay.Figures(); taken > 0 || f.InStepAt.Before(w.now) {
		t.Errorf("after six intervals, of which five found their number taken, it was in step at %v, and it is %v",
			f.InStepAt, w.now)
	}
}
