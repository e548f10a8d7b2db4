package relay

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// The result of an import serves other shards for five seconds after the import began, and once for each shard. A shard
// that loads later reads again, because the relay that wrote before may have stored more meanwhile.
func TestAnImportIsUsedByOtherShardsForFiveSeconds(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_000)
	for age, want := range map[time.Duration]bool{0: true, 5*time.Second - 1: true, 5 * time.Second: false, time.Hour: false} {
		var i imported
		if _, ok := i.take(began); ok {
			t.Error("there was no import, and it has counts")
		}
		i.put(began, []store.Count{{Count: 7}})
		i.drop(began.Add(age))
		if kept := i.counts != nil; kept != want {
			t.Errorf("after %v the counts are kept: %v, want %v", age, kept, want)
		}
		i.put(began, []store.Count{{Count: 7}})
		counts, ok := i.take(began.Add(age))
		if ok != want {
			t.Errorf("an import of %v ago is used: %v, want %v", age, ok, want)
		}
		if ok && len(counts) != 1 {
			t.Errorf("%d counts, want the one that was read", len(counts))
		}
		if _, again := i.take(began.Add(age)); again {
			t.Error("it is used twice")
		}
	}
}
