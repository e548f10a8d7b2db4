package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// The committed pictures are the program's. The pictures of windows show a limiter's decisions.
func TestPicturesAreWhatTheProgramDraws(t *testing.T) {
	for name, draw := range pictures {
		want, err := draw()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("../../../shared/gen/pictures", name)); err != nil || string(got) != want {
			t.Errorf("%s is not what the program draws: run make generate (%v)", name, err)
		}
	}
}

func TestOnlyCellsLetMoreThanTheLimitPassInAMinute(t *testing.T) {
	for window, least := range map[store.Window]int{store.WindowCells: 180, store.WindowPrecise: 95} {
		perSecond, err := admitted(window)
		if err != nil {
			t.Fatal(err)
		}
		most, last := 0, 0
		for second, n := range perSecond {
			if last += n; second >= 60 {
				last -= perSecond[second-60]
			}
			most = max(most, last)
		}
		if most < least || window == store.WindowPrecise && most > limit {
			t.Errorf("%s: %d passed in a minute", window, most)
		}
	}
}

// The picture of a burst shows what a node of a region decides: which requests wait for Redis, which are decided in
// memory, and which are denied.
func TestABurstIsDecidedAsItIsDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		limiter, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, RegionNodes: burstNodes})
		if err != nil {
			t.Fatal(err)
		}
		if err := limiter.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		origin.Faults.Delay(time.Millisecond) // a reply comes only while a request waits
		request := dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "ann", Limit: burstLimit,
			Duration: time.Hour}
		var ways []way
		for range burst {
			switch d := limiter.Allow(t.Context(), request); {
			case !d.Allowed:
				ways = append(ways, wayDenied)
			case d.Source == dataplane.SourceOrigin:
				ways = append(ways, wayWaits)
			default:
				ways = append(ways, wayMemory)
			}
		}
		// Near the limit a send can be on its way when a request uses up the share: then more requests wait than are drawn.
		const first, more = 34, 12
		want := waysOfABurst(burstLimit, burstNodes, burst)
		waiting := waits(ways) - waits(want)
		if !slices.Equal(ways[:first], want[:first]) || waiting < -2 || waiting > more ||
			!slices.Equal(ways[burstLimit:], want[burstLimit:]) {
			t.Errorf("decided as\n%v\ndrawn as\n%v", ways, want)
		}
		if err := limiter.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func waits(ways []way) (n int) {
	for _, w := range ways {
		if w == wayWaits {
			n++
		}
	}
	return n
}
