package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Conformance 6: "Names with any characters ('-', ':', '/', NUL, emoji, trailing
// space, 'A' against 'a') never collide".
func testCountNames(t *testing.T, s Store) { testDistinct(t, s, lookalikeCells(freshWorkspace())) }

// Conformance 9: lengths are counted in bytes, 191, 255 and 255 of them.
func testCountLongNames(t *testing.T, s Store) { testDistinct(t, s, longestCells(freshWorkspace())) }

// testDistinct gives each cell a count of its own and expects each one back.
func testDistinct(t *testing.T, s Store, cells []window.Cell) {
	t.Helper()
	rows := make(map[window.Cell]int64)
	var want []store.Imported
	for i, c := range cells {
		rows[c] = int64(i + 1)
		want = append(want, store.Imported{Cell: c, Foreign: int64(i + 1)})
	}
	publish(t, s, "us", sortedCounts(rows)...)
	wantImported(t, s, "eu", want...)
}

func testCountRegions(t *testing.T, s Store) {
	c := liveCell("w", "x")
	regions := []string{"eu", "EU", "eu ", " eu", "eu\x00", "eü", "\xff", "e:u", "🙂",
		strings.Repeat("r", 47) + "a", strings.Repeat("r", 47) + "b"}
	sum := int64(0)
	for i, r := range regions {
		publish(t, s, r, store.Count{Cell: c, Count: 1 << i})
		sum += 1 << i
	}
	for i, r := range regions {
		wantImported(t, s, r, store.Imported{Cell: c, Foreign: sum - 1<<i, Own: 1 << i})
	}
}

// Conformance 5: "Same identifier, other duration → independent. Other limit, same
// duration → the same counter." Conformance 6: "The same namespace in two
// workspaces → isolated." And two modes never share cells, nor do two generations.
func testCountIdentity(t *testing.T, s Store) {
	hour, other, day := liveCell("w", "x"), liveCell("w2", "x"), liveCell("w", "x")
	day.Duration, day.Sequence = 24*time.Hour, sequenceNow(24*time.Hour)
	estimate, estimateDay := hour, day
	estimate.Mode, estimateDay.Mode = window.Estimate, window.Estimate
	reset, last := hour, estimateDay
	reset.Generation, last.Generation = 1, window.GenerationMax
	rows := map[window.Cell]int64{hour: 1, other: 2, day: 4, estimate: 8, estimateDay: 16, reset: 32, last: 64}
	publish(t, s, "eu", sortedCounts(rows)...)
	var want []store.Imported
	for c, n := range rows {
		want = append(want, store.Imported{Cell: c, Foreign: n})
	}
	wantImported(t, s, "us", want...)
}

// components is the counter as mathematics has it: a map, merged by max.
type components map[component]store.Count

type component struct {
	cell   window.Cell
	region string
}

func (m components) publish(region string, counts []store.Count) {
	for _, c := range counts {
		k := component{c.Cell, region}
		if was, ok := m[k]; !ok || c.Count > was.Count {
			m[k] = c
		}
	}
}

func (m components) imported(region string, nowMs int64) map[window.Cell]store.Imported {
	out := make(map[window.Cell]store.Imported)
	for k, n := range m {
		if k.cell.ExpiresAtMs() <= nowMs {
			continue
		}
		i := out[k.cell]
		i.Cell = k.cell
		if k.region == region {
			i.Own = n.Count
		} else {
			i.Foreign += n.Count
			if i.NewestRegion == "" || n.CountedAtMs > i.NewestAtMs || n.CountedAtMs == i.NewestAtMs && k.region > i.NewestRegion {
				i.NewestRegion, i.NewestAtMs = k.region, n.CountedAtMs
			}
		}
		out[k.cell] = i
	}
	return out
}

// drawPublication is what a region may send: now and then an earlier publication again.
func drawPublication(rt *rapid.T, workspace string, regions []string, history []publication) publication {
	if len(history) > 0 && rapid.IntRange(0, 3).Draw(rt, "repeat an earlier one") == 0 {
		return rapid.SampledFrom(history).Draw(rt, "earlier")
	}
	p := publication{region: rapid.SampledFrom(regions).Draw(rt, "region")}
	p.counts = sortedCounts(rapid.MapOfN(drawCell(workspace), rapid.Int64Range(1, window.LimitMax), 1, 8).Draw(rt, "rows"))
	for i := range p.counts {
		p.counts[i].CountedAtMs = began.UnixMilli() + rapid.Int64Range(0, 3).Draw(rt, "counted at")
		p.counts[i].Shared = rapid.Bool().Draw(rt, "shared")
	}
	return p
}

type publication struct {
	region string
	counts []store.Count
}

// Publications by several regions, in any order and any number of times, leave what
// the model has: max within a component, the sum over the others.
func testCountHistories(t *testing.T, open func(testing.TB) Store) {
	regions := []string{"eu", "us", "US", "ap "}
	rapid.Check(t, func(rt *rapid.T) {
		s, workspace := open(t), freshWorkspace() // or each history would read the rows of all before it
		model := make(components)
		var history []publication
		for range rapid.IntRange(1, 12).Draw(rt, "publications") {
			p := drawPublication(rt, workspace, regions, history)
			if err := s.Publish(t.Context(), p.region, p.counts); err != nil {
				rt.Fatalf("publish %v as %q: %v", p.counts, p.region, err)
			}
			model.publish(p.region, p.counts)
			history = append(history, p)
		}
		nowMs := began.UnixMilli() + rapid.SampledFrom([]int64{0, time.Hour.Milliseconds(), 25 * time.Hour.Milliseconds(), 3 * window.DurationMax.Milliseconds()}).Draw(rt, "later")
		for _, region := range append([]string{"elsewhere"}, regions...) {
			got, want := imported(rt, s, region, nowMs, workspace), model.imported(region, nowMs)
			if !maps.Equal(got, want) {
				rt.Fatalf("as %q:\n got %v\nwant %v", region, got, want)
			}
		}
	})
}

// Publishers of the same rows, in one region and in several, with chunks that
// overlap in every way, while another imports: nobody fails, no count falls, and the
// largest stay. Conformance 37: "two nodes flushing the same cells … never deadlock".
func testPublishConcurrently(t *testing.T, s Store) {
	const (
		cells      = 600
		rounds     = 12
		publishers = 4
		chunkRows  = 150
	)
	sorted := make([]window.Cell, cells)
	for i := range sorted {
		sorted[i] = liveCell("w", fmt.Sprintf("%04d", i))
	}
	var mu sync.Mutex
	model := make(components)

	var wg sync.WaitGroup
	for p := range publishers {
		region := []string{"eu", "us"}[p%2]
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(p), 0)) // any counts will do: most come too late to be the largest
			for r := range rounds {
				for from := (r*37 + p*11) % chunkRows; from < cells; from += chunkRows {
					var chunk []store.Count
					for _, c := range sorted[from:min(from+chunkRows, cells)] {
						chunk = append(chunk, store.Count{Cell: c, Count: 1 + random.Int64N(1000)})
					}
					if err := s.Publish(t.Context(), region, chunk); err != nil {
						t.Errorf("publisher %d: %v", p, err)
						return
					}
					mu.Lock()
					model.publish(region, chunk)
					mu.Unlock()
				}
			}
		})
	}
	largest := make(map[window.Cell]int64)
	for range rounds {
		for c, i := range imported(t, s, "eu", began.UnixMilli(), "") {
			if i.Own < largest[c] {
				t.Errorf("%v fell from %d to %d", c, largest[c], i.Own)
			}
			largest[c] = i.Own
		}
	}
	wg.Wait()

	for _, region := range []string{"eu", "us", "elsewhere"} {
		if got, want := imported(t, s, region, began.UnixMilli(), ""), model.imported(region, began.UnixMilli()); !maps.Equal(got, want) {
			t.Errorf("as %q, afterwards: not the largest of what was published", region)
		}
	}
}
