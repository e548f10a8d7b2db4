package peers_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// R2 with peers: a count of at least 10 % of the limit arrives everywhere within half an interval and the link's delay.
// A lower count arrives within the link's delay and an eighth of an interval more after a second region uses the cell.
// MySQL, 60 to 120 ms away, plays no part.
func TestR2ThroughPeers(t *testing.T) {
	for _, names := range [][]string{{"eu", "us"}, {"eu", "us", "ap"}} {
		for offset := range 5 { // between the cost and the relays' intervals
			t.Run(fmt.Sprintf("%d regions, offset %d", len(names), offset), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, 1, names...)
					defer f.stop()
					f.feed.Faults.Delay(60*time.Millisecond + time.Duration(offset)*15*time.Millisecond)
					<-time.After(time.Duration(offset) * interval / 5)
					loud, quiet := f.regions[0].cell("loud", time.Hour), f.regions[0].cell("quiet", time.Hour)
					f.regions[0].accept(loud, 10, 100)
					if took, most := f.untilKnown(loud), interval/2+oneWay+6*redisRTT; took > most {
						t.Errorf("10 %% are known after %v, want at most %v", took, most)
					}
					f.regions[0].accept(quiet, 2, 100)
					<-time.After(2 * time.Second)
					f.regions[1].accept(quiet, 1, 100)
					if took, most := f.untilKnown(quiet), interval*5/8+2*oneWay+12*redisRTT; took > most {
						t.Errorf("2 %% are known after %v, want at most %v", took, most)
					}
				})
			})
		}
	}
}

// With the streams cut, all counts go through MySQL, within its own bound, and nothing is lost. When the streams work
// again, they are used again.
func TestR2WithTheStreamsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, "eu", "us", "ap")
		defer f.stop()
		eu := f.regions[0]
		f.network.cut()
		<-time.After(time.Second)
		if n := connected(t, eu.relays[0].peers, "us"); n != 0 {
			t.Errorf("%d streams, and all are cut", n)
		}
		cut := eu.cell("cut", time.Hour)
		eu.accept(cut, 50, 100)
		if took, most := f.untilKnown(cut), 2*(interval+mysqlRTT)+6*redisRTT; took > most {
			t.Errorf("known through MySQL after %v, want at most %v", took, most)
		}
		f.network.mend()
		<-time.After(20 * time.Second)
		mended := eu.cell("mended", time.Hour)
		eu.accept(mended, 50, 100)
		if took, most := f.untilKnown(mended), interval+oneWay+6*redisRTT; took > most {
			t.Errorf("known through peers after %v, want at most %v", took, most)
		}
	})
}

// Streams that break at any moment lose no counts, and no region receives more than was accepted.
func TestR1R2WhileTheStreamsFlap(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			f, random := newFleet(t, 1, "eu", "us", "ap"), rand.New(rand.NewPCG(seed, 0))
			defer f.stop()
			var cells []window.Cell
			for i := range 10 {
				cells = append(cells, f.regions[0].cell(fmt.Sprint("k", i), time.Hour))
			}
			for range 200 {
				f.regions[random.IntN(3)].accept(cells[random.IntN(len(cells))], 1+random.Int64N(9), 100)
				switch random.IntN(20) {
				case 0:
					f.network.cut()
				case 1:
					f.network.mend()
				}
				<-time.After(time.Duration(random.IntN(200)) * time.Millisecond)
				f.known(cells...)
			}
			f.untilKnown(cells...)
		})
	}
}

// While MySQL is down, all counts go through peers. Afterwards nothing is lost.
func TestMySQLIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, "eu", "us")
		defer f.stop()
		eu := f.regions[0]
		f.feed.Faults.Fail(errUnreachable)
		<-time.After(time.Second)
		first, second := eu.cell("first", time.Hour), eu.cell("second", time.Hour)
		for _, cell := range []window.Cell{first, second, first} {
			eu.accept(cell, 50, 100)
			if took, most := f.untilKnown(cell), interval/2+oneWay+6*redisRTT; took > most {
				t.Errorf("known after %v, want at most %v", took, most)
			}
		}
		<-time.After(30 * time.Second)
		f.feed.Faults.Fail(nil)
		f.untilKnown(first, second)
	})
}

// A relay that takes over while MySQL is down receives all counts that the other regions sent to its predecessor.
// Otherwise, with two other regions, a count that grows would stay below the sum that the origin has.
func TestARelayThatTakesOverReceivesWhatPeersSentBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, "eu", "us", "ap")
		defer f.stop()
		f.feed.Faults.Fail(errUnreachable)
		f.counts.Faults.Fail(errUnreachable)
		eu, us, ap := f.regions[0], f.regions[1], f.regions[2]
		grows, stands := eu.cell("grows", time.Hour), eu.cell("stands", time.Hour)
		for _, c := range []window.Cell{grows, stands} {
			us.accept(c, 20, 100)
			ap.accept(c, 30, 100)
			eu.accept(c, 1, 100)
		}
		f.untilKnown(grows, stands)
		eu.relays[0].origin.Faults.Fail(errUnreachable)
		<-time.After(8 * time.Second)
		us.accept(grows, 1, 100)
		if took, most := f.untilKnown(grows, stands), interval+oneWay+6*redisRTT; took > most {
			t.Errorf("known after %v, want at most %v", took, most)
		}
	})
}

// When another relay of a region takes over, streams to it and from it open.
func TestTakeoverAmongPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, "eu", "us")
		defer f.stop()
		eu, us := f.regions[0], f.regions[1]
		for i, want := range []int{1, 0, 0} {
			if n := connected(t, eu.relays[i].peers, "us"); n != want {
				t.Errorf("relay %d of eu has %d streams, want %d: one relay of us leads", i, n, want)
			}
		}
		eu.relays[0].origin.Faults.Fail(errUnreachable)
		us.relays[0].origin.Faults.Fail(errUnreachable)
		<-time.After(8 * time.Second)
		for i, c := range []struct{ from, to *region }{{eu, us}, {us, eu}} {
			cell := eu.cell(fmt.Sprint("k", i), time.Hour)
			c.from.accept(cell, 50, 100)
			if took, most := f.untilKnown(cell), interval+oneWay+6*redisRTT; took > most {
				t.Errorf("from %s: known after %v, want at most %v", c.from.name, took, most)
			}
		}
		for _, r := range f.regions {
			if n := connected(t, r.relays[0].peers, f.names[1-slices.Index(f.names, r.name)]); n != 0 {
				t.Errorf("the former relay of %s has %d streams", r.name, n)
			}
		}
	})
}
