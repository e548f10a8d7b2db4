package dataplane

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// elsewhere is what this node knows of the other regions by their digests.
type elsewhere struct {
	own atomic.Pointer[filter] // this node's filter as it is stored; nil without one

	mu          sync.Mutex // never held across I/O
	ownComplete bool       // no key was left out of own
	mute        bool       // the last bulletin could not be published, or not whole
	filters     map[nodeOf]*filter
	fresh       []*filter                   // of filters: those that are new since takeFresh
	cells       map[window.Cell][]component // that bulletins tell of
	heardAtMs   map[string]int64            // by region: when last heard of, by digest or by a count
}

type nodeOf struct{ region, node string }

// component is a region's count in a cell.
type component struct {
	region             string
	count, countedAtMs int64
}

const (
	// regionHeldMs is for how long a region of which nothing is heard any more is still
	// taken to be there, and to use any key.
	regionHeldMs = 10 * 60 * 1000
	// toldCellsMax bounds the cells that are remembered of bulletins.
	toldCellsMax = 200_000
	// freshMax bounds the filters that wait to be looked at: a turn's of a large fleet.
	freshMax = 1000
)

func (w *elsewhere) init() {
	w.filters, w.cells, w.heardAtMs = make(map[nodeOf]*filter), make(map[window.Cell][]component), make(map[string]int64)
}

// forget ends all knowledge, but for which regions there are.
func (w *elsewhere) forget() {
	w.own.Store(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.filters)
	clear(w.cells)
}

func (w *elsewhere) ownFilter(f *filter, complete bool) {
	w.own.Store(f)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ownComplete = complete
}

func (w *elsewhere) heardOf(region string, nowMs int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heardAtMs[region] = max(w.heardAtMs[region], nowMs)
}

func (w *elsewhere) learnFilter(d *store.Digest, f *filter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.filters[nodeOf{d.Region, d.Node}] = f
	if len(w.fresh) < freshMax {
		w.fresh = append(w.fresh, f)
	}
}

func (w *elsewhere) takeFresh() (fresh []*filter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh, w.fresh = w.fresh, nil
	return fresh
}

// learnCount merges one count of a bulletin. known is false when there is no room to
// remember its cell.
func (w *elsewhere) learnCount(region string, c *store.Count) (foreign int64, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := w.cells[c.Cell]
	if parts == nil && len(w.cells) >= toldCellsMax {
		return 0, false
	}
	i := slices.IndexFunc(parts, func(p component) bool { return p.region == region })
	if i < 0 {
		i = len(parts)
		parts = append(parts, component{region: region})
		w.cells[c.Cell] = parts
	}
	if c.Count > parts[i].count {
		parts[i].count, parts[i].countedAtMs = c.Count, c.CountedAtMs
	}
	return sumOf(parts), true
}

func sumOf(parts []component) (sum int64) {
	for _, p := range parts {
		sum = min(sum+p.count, cell.CountMax)
	}
	return sum
}

// bulletinFailed notes whether this node could tell all that it has to.
func (w *elsewhere) bulletinFailed(failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = failed
}

// of is what bulletins have told of a cell, and by how many regions.
func (w *elsewhere) of(c *window.Cell) (foreign int64, regions int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := w.cells[*c]
	return sumOf(parts), len(parts)
}

// byRegion is what bulletins have told of a cell.
func (w *elsewhere) byRegion(c *window.Cell) (told []RegionCount) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.cells[*c] {
		told = append(told, RegionCount{p.region, p.count, moment(p.countedAtMs)})
	}
	slices.SortFunc(told, func(a, b RegionCount) int { return strings.Compare(a.Region, b.Region) })
	return told
}

// users is how many other regions' filters hold a key.
func (w *elsewhere) users(hash uint64, nowMs int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var regions []string
	for n, f := range w.filters {
		if f.expiresAtMs > nowMs && !slices.Contains(regions, n.region) && f.has(hash) {
			regions = append(regions, n.region)
		}
	}
	return len(regions)
}

// covered is true when every region that is there can be asked whether it uses a key, and
// all of them can ask this node: then a key that no filter holds is used here alone.
func (w *elsewhere) covered(nowMs int64) bool {
	own := w.own.Load()
	if own == nil || own.expiresAtMs <= nowMs {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ownComplete || w.mute || len(w.heardAtMs) == 0 {
		return false
	}
	asked := make(map[string]bool)
	for n, f := range w.filters {
		if f.expiresAtMs > nowMs {
			asked[n.region] = true
		}
	}
	for region, atMs := range w.heardAtMs {
		if !asked[region] && nowMs-atMs < regionHeldMs {
			return false
		}
	}
	return len(asked) > 0
}

// regions is how many others there are.
func (w *elsewhere) regions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.heardAtMs)
}

// tidy drops what is over.
func (w *elsewhere) tidy(nowMs int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.filters, func(_ nodeOf, f *filter) bool { return f.expiresAtMs <= nowMs })
	maps.DeleteFunc(w.cells, func(c window.Cell, _ []component) bool { return c.ExpiresAtMs() <= nowMs })
	maps.DeleteFunc(w.heardAtMs, func(_ string, atMs int64) bool { return nowMs-atMs >= regionHeldMs })
}
