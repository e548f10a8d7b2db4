package counttest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

// Conformance 6: "Names with any characters ('-', ':', '/', NUL, emoji, trailing
// space, 'A' against 'a') never collide".
func testCountNames(t *testing.T, s Store) {
	testDistinct(t, s, suite.LookalikeCells(suite.FreshWorkspace()))
}

// Conformance 9: lengths are counted in bytes, 191, 255 and 255 of them.
func testCountLongNames(t *testing.T, s Store) {
	testDistinct(t, s, suite.LongestCells(suite.FreshWorkspace()))
}

// testDistinct gives each cell its own count and expects each count back.
func testDistinct(t *testing.T, s Store, cells []window.Cell) {
	t.Helper()
	rows, want := suite.Numbered(cells, countOf), make(components)
	publish(t, s, "us", rows...)
	want.publish("us", rows)
	wantImported(t, s, want)
}

func testCountRegions(t *testing.T, s Store) {
	c := suite.LiveCell("w", "x")
	regions := []string{"eu", "EU", "eu ", " eu", "eu\x00", "eü", "\xff", "e:u", "🙂",
		strings.Repeat("r", 47) + "a", strings.Repeat("r", 47) + "b"}
	want := make(components)
	for i, r := range regions {
		publish(t, s, r, store.Count{Cell: c, Count: 1 << i})
		want[component{c, r}] = 1 << i
	}
	wantImported(t, s, want)
}

// Conformance 5: "Same identifier, other duration → independent. Other limit, same
// duration → the same counter." Conformance 6: "The same namespace in two
// workspaces → isolated." And two modes never share cells, nor do two generations.
func testCountIdentity(t *testing.T, s Store) { testDistinct(t, s, suite.LikeCells()) }

// components is the counter as mathematics has it: a map, merged by max.
type components map[component]int64

type component struct {
	cell   window.Cell
	region string
}

func (m components) publish(region string, counts []store.Count) {
	for _, c := range counts {
		k := component{c.Cell, region}
		m[k] = max(m[k], c.Count)
	}
}

// alive returns the components that have not expired.
func (m components) alive(nowMs int64) components {
	alive := maps.Clone(m)
	maps.DeleteFunc(alive, func(k component, _ int64) bool { return k.cell.ExpiresAtMs() <= nowMs })
	return alive
}

// drawPublication returns a publication that a region can send: now and then an earlier publication again.
func drawPublication(rt *rapid.T, workspace string, regions []string, history []publication) publication {
	if len(history) > 0 && rapid.IntRange(0, 3).Draw(rt, "repeat an earlier one") == 0 {
		return rapid.SampledFrom(history).Draw(rt, "earlier")
	}
	p := publication{region: rapid.SampledFrom(regions).Draw(rt, "region")}
	p.counts = sortedCounts(rapid.MapOfN(drawCell(workspace), rapid.Int64Range(1, window.LimitMax), 1, 8).Draw(rt, "rows"))
	return p
}

type publication struct {
	region string
	counts []store.Count
}

// Publications by several regions, in any order and any number of times, leave the model's counts.
func testCountHistories(t *testing.T, open func(testing.TB) Store) {
	regions := []string{"eu", "us", "US", "ap "}
	rapid.Check(t, func(rt *rapid.T) {
		s, workspace := open(t), suite.FreshWorkspace() // or each history would read the rows of all before it
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
		nowMs := suite.Began.UnixMilli() + rapid.SampledFrom([]int64{0, time.Hour.Milliseconds(),
			25 * time.Hour.Milliseconds(), 3 * window.DurationMax.Milliseconds()}).Draw(rt, "later")
		if got, want := imported(rt, s, nowMs, workspace), model.alive(nowMs); !maps.Equal(got, want) {
			rt.Fatalf(" got %v\nwant %v", got, want)
		}
	})
}

// Publishers of the same rows, in one region and in several, with chunks that overlap in every way, while another
// process imports: no call fails, no count falls, and the largest counts stay. Conformance 37: "two nodes flushing the
// same cells … never deadlock".
func testPublishConcurrently(t *testing.T, s Store) {
	const (
		cells      = 600
		rounds     = 12
		publishers = 4
		chunkRows  = 150
	)
	sorted := suite.LiveCells(cells)
	slices.SortFunc(sorted, window.Cell.Compare)
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
	largest := make(components)
	for range rounds {
		for k, n := range imported(t, s, suite.Began.UnixMilli(), "") {
			if n < largest[k] {
				t.Errorf("%v of %q fell from %d to %d", k.cell, k.region, largest[k], n)
			}
			largest[k] = n
		}
	}
	wg.Wait()
	if got := imported(t, s, suite.Began.UnixMilli(), ""); !maps.Equal(got, model) {
		t.Error("afterwards: not the largest of what was published")
	}
}

// countOf is for suite.Numbered.
func countOf(c window.Cell, n int64) store.Count { return store.Count{Cell: c, Count: n} }

// drawCell draws one of a few live cells, so that histories often use the same cell.
func drawCell(workspace string) *rapid.Generator[window.Cell] {
	return rapid.Custom(func(t *rapid.T) window.Cell {
		d := rapid.SampledFrom([]time.Duration{suite.Hour, suite.Day, suite.Longest}).Draw(t, "duration")
		return window.Cell{
			Key: window.Key{
				Workspace:  workspace + rapid.SampledFrom([]string{"", " ", "x"}).Draw(t, "workspace"),
				Namespace:  rapid.SampledFrom([]string{"n", "N", "n:"}).Draw(t, "namespace"),
				Identifier: rapid.SampledFrom([]string{"a", "A", "a ", "\xff", "é"}).Draw(t, "identifier"),
				Duration:   d,
				Generation: rapid.SampledFrom([]window.Generation{0, 0, 0, 1, window.GenerationMax}).Draw(t, "generation"),
			},
			Sequence: suite.SequenceNow(d) - rapid.Int64Range(0, 1).Draw(t, "sequence"),
		}
	})
}

// sortedCounts orders rows as Publish wants them.
func sortedCounts(rows map[window.Cell]int64) []store.Count {
	counts := make([]store.Count, 0, len(rows))
	for c, n := range rows {
		counts = append(counts, store.Count{Cell: c, Count: n})
	}
	sortCounts(counts)
	return counts
}
