package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/rewind"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// sideBySide is two fleets with the same history in virtual time: the model over memstore's origins, and a fleet over
// Redis servers. Both have memstore's feed and counts.
//
// Cells of the model belong to w.now. A Redis server's clock can't be moved, so its data moves back instead, by pairs
// of windows (see movedOrigin). Shorter times move nothing but leases there. A history begins at least a quarter of a
// window away from any window's end, so neither the shorter times nor the time that the history takes ends a cell.
type sideBySide struct {
	test   testing.TB
	names  []string
	raws   []*redis.Client // by region
	opened []*redisorigin.Origin

	now    time.Time     // of both fleets
	moved  time.Duration // how far the servers' data has been moved, of this
	window time.Duration // cells have windows of this length and of twice this length
	peers  bool          // relays also exchange rows with each other
	fleets [2]*twinFleet // the model's and the servers'
	full   []bool        // by region: its servers have no memory left
	cells  []window.Cell // cells that were counted in, and that seen has
	seen   map[window.Cell]bool
	stream uint64 // stream of the last chunk
	busy   bool   // a server took long to answer: this history proves nothing
	paged  bool   // the servers' changes come a page at a time, a planted fault
}

type twinFleet struct {
	name    string
	feed    *memstore.Feed
	counts  *memstore.Counts
	regions []*twinRegion
}

type twinRegion struct {
	name    string
	nodes   [2]*twinNode
	way     *interrupted // the relays' way to the origin
	wipe    func()
	relays  [2]*relay.Relay
	started int // relays started so far
}

// twinNode keeps a node's cost of each cell, and sends it as a limiter does.
type twinNode struct {
	way   store.FullOrigin
	cells map[window.Cell]*twinCell
}

type twinCell struct {
	accepted, unsent, known int64
	epoch                   store.Epoch
}

// The longest time that a call to a server on this machine may take. Leases end by the server's clock, at multiples of
// an interval. Other calls end by the relays' timeouts, the shortest of which is twice as long.
const (
	busyLease = interval / 2
	busyCall  = time.Second
)

func newSideBySide(t testing.TB, names ...string) *sideBySide {
	w := &sideBySide{test: t, names: names, full: make([]bool, len(names))}
	for range names {
		server := servers.RedisForTest(t)
		raw := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = raw.Close() })
		w.raws = append(w.raws, raw)
	}
	t.Cleanup(w.closeOrigins)
	return w
}

// open returns a client of a region's server that has had no answer yet. A client of an earlier history would remember
// an epoch that the model's client does not have.
func (w *sideBySide) open(at int) *redisorigin.Origin {
	origin, err := redisorigin.Open([]string{"redis://" + w.raws[at].Options().Addr}, redisorigin.Options{})
	if err != nil {
		w.test.Fatal(err)
	}
	w.opened = append(w.opened, origin)
	return origin
}

func (w *sideBySide) closeOrigins() {
	for _, origin := range w.opened {
		_ = origin.Close()
	}
	w.opened = nil
}

func (w *sideBySide) clock() time.Time { return w.now }

// begin empties both fleets for a history.
func (w *sideBySide) begin(peers bool) {
	w.now, w.moved, w.cells, w.busy, w.peers = time.Now().Truncate(time.Millisecond), 0, nil, false, peers
	w.seen = make(map[window.Cell]bool)
	w.closeOrigins()
	for w.window = time.Hour; ; w.window += time.Minute {
		if at := w.now.UnixMilli() % (2 * w.window).Milliseconds(); at >= w.window.Milliseconds()/4 &&
			at <= w.window.Milliseconds()/2 {
			break
		}
	}
	for i := range w.fleets {
		f := &twinFleet{name: [2]string{"the model", "Redis"}[i]}
		f.counts = memstore.NewCounts(memstore.CountsOptions{Clock: w.clock})
		f.feed = memstore.NewFeed(memstore.FeedOptions{Clock: w.clock, Settings: f.counts.SettingsVersion})
		w.fleets[i] = f
	}
	for at, name := range w.names {
		w.setFull(at, false)
		w.flush(at)
		model := memstore.NewOrigin(memstore.OriginOptions{Clock: w.clock})
		lease := new(movedLease)
		for i, f := range w.fleets {
			way := func(model *memstore.Origin) store.FullOrigin {
				if i == 0 {
					return &fullModel{Origin: model, full: &w.full[at], clock: w.clock}
				}
				return &movedOrigin{Origin: w.open(at), w: w, raw: w.raws[at], lease: lease}
			}
			r := &twinRegion{name: name, way: &interrupted{FullOrigin: way(model)}, wipe: model.Wipe}
			if i == 1 {
				r.wipe = func() { w.flush(at) }
			}
			for n := range r.nodes {
				r.nodes[n] = &twinNode{way: way(model.Client()), cells: make(map[window.Cell]*twinCell)}
			}
			f.regions = append(f.regions, r)
			for n := range r.relays {
				w.newRelay(f, at, n)
			}
		}
	}
}

// newRelay replaces a relay that does nothing any more.
func (w *sideBySide) newRelay(f *twinFleet, at, n int) {
	r := f.regions[at]
	r.started++
	c := relay.Config{Region: r.name, Holder: fmt.Sprint(n, "-", r.started), Origin: r.way, Feed: f.feed, Counts: f.counts,
		Clock: w.clock}
	if w.peers {
		c.Publish = func(row store.FeedRow) {
			for _, other := range f.regions {
				for _, to := range other.relays {
					if other != r && to != nil {
						_ = to.Apply(row) // a relay that doesn't lead returns ErrIdle
					}
				}
			}
		}
	}
	made, err := relay.New(c)
	if err != nil {
		w.test.Fatal(err)
	}
	r.relays[n] = made
}

// cell returns a cell of the model: of the current window, or from windows after it (before it if negative).
func (w *sideBySide) cell(identifier string, windows, from int) window.Cell {
	key := window.Key{Workspace: "w", Namespace: "n", Identifier: identifier, Duration: time.Duration(windows) * w.window}
	return window.Cell{Key: key, Sequence: window.Sequence(w.now.UnixMilli(), key.DurationMs()) + int64(from)}
}

// send makes a node of each fleet accept a cost in some cells and send it.
func (w *sideBySide) send(at, node int, cost, limit int64, cells ...window.Cell) {
	w.countIn(cells)
	for _, f := range w.fleets {
		w.sendFrom(f.regions[at].nodes[node], cost, limit, cells)
	}
}

// countIn begins the next chunk, with the given cells.
func (w *sideBySide) countIn(cells []window.Cell) {
	w.stream++
	for _, c := range cells {
		if !w.seen[c] {
			w.seen[c], w.cells = true, append(w.cells, c)
		}
	}
}

func (w *sideBySide) sendFrom(n *twinNode, cost, limit int64, cells []window.Cell) {
	for _, c := range cells {
		known := n.cells[c]
		if known == nil {
			known = new(twinCell)
			n.cells[c] = known
		}
		known.accepted, known.unsent = known.accepted+cost, known.unsent+cost
	}
	for try := range 3 {
		var left []window.Cell
		chunk := store.Chunk{Stream: w.stream<<2 + uint64(try), Number: 1}
		for _, c := range cells {
			known := n.cells[c]
			chunk.Costs = append(chunk.Costs, store.Cost{Cell: c, Epoch: known.epoch, Add: known.unsent, Limit: limit})
			if try > 0 { // the origin has lost its counts
				last := &chunk.Costs[len(chunk.Costs)-1]
				last.Add, last.Restore, last.Known = 0, known.accepted, known.known
			}
		}
		reply, err := n.way.Send(context.Background(), chunk)
		if err != nil {
			return // the origin has no memory: the cost goes with the next chunk
		}
		for i, total := range reply.Totals {
			known := n.cells[cells[i]]
			known.epoch = total.Epoch
			switch {
			case total.Err == nil:
				known.unsent, known.known = 0, max(known.known, total.Region)
			case errors.Is(total.Err, store.ErrEpoch):
				left = append(left, cells[i])
			default:
				w.test.Fatalf("%v: %v", cells[i], total.Err)
			}
		}
		if cells = left; len(cells) == 0 {
			return
		}
	}
}

// pass runs a step of a relay in each fleet.
func (w *sideBySide) pass(at, n int) {
	for _, f := range w.fleets {
		_ = f.regions[at].relays[n].Step(context.Background()) // failures show in the comparison
	}
}

// passAmid is pass, with something that happens in each fleet before the n-th call of the relay, if it makes so many.
func (w *sideBySide) passAmid(at, relay, n int, happens func(r *twinRegion)) {
	for _, f := range w.fleets {
		r := f.regions[at]
		r.way.left, r.way.happens = n, func() { happens(r) }
	}
	w.pass(at, relay)
	for _, f := range w.fleets {
		f.regions[at].way.happens = nil
	}
}

// intervals lets time pass, with a step of all relays at each interval.
func (w *sideBySide) intervals(n int) {
	for range n {
		w.now = w.now.Add(interval)
		for at := range w.names {
			w.pass(at, 0)
			w.pass(at, 1)
		}
	}
}

// takeOver replaces a relay by a new relay. The old relay releases its lease, or ends without a call.
func (w *sideBySide) takeOver(at, n int, released bool) {
	for _, f := range w.fleets {
		if released {
			_ = f.regions[at].relays[n].Stop(context.Background())
		}
		w.newRelay(f, at, n)
	}
}

// windowsPass lets pairs of windows pass.
func (w *sideBySide) windowsPass(pairs int) {
	d := time.Duration(2*pairs) * w.window
	w.now, w.moved = w.now.Add(d), w.moved+d
	for _, raw := range w.raws {
		if err := rewind.Counts(context.Background(), raw, d); err != nil {
			w.test.Fatal(err)
		}
	}
}

// wipe empties a region's servers, and gives them memory.
func (w *sideBySide) wipe(at int) {
	w.setFull(at, false)
	for _, f := range w.fleets {
		f.regions[at].wipe()
	}
}

func (w *sideBySide) flush(at int) {
	if err := w.raws[at].FlushAll(context.Background()).Err(); err != nil {
		w.test.Fatal(err)
	}
}

// fill makes a region's servers refuse calls that need memory, once they have an epoch and are healed. A server that
// has just lost its data has memory.
func (w *sideBySide) fill(at int) {
	for _, f := range w.fleets {
		changes, err := f.regions[at].nodes[0].way.Changes(context.Background(), 0, 1)
		if err != nil || !changes.Healed {
			return
		}
	}
	w.setFull(at, true)
}

func (w *sideBySide) setFull(at int, full bool) {
	bytes := map[bool]string{false: "0", true: "1"}[full]
	if err := w.raws[at].ConfigSet(context.Background(), "maxmemory", bytes).Err(); err != nil {
		w.test.Fatal(err)
	}
	w.full[at] = full
}

var errAway = errors.New("away")

// mysql makes the feed and the counts of both fleets answer or fail.
func (w *sideBySide) mysql(away bool) {
	for _, f := range w.fleets {
		var err error
		if away {
			err = errAway
		}
		f.feed.Faults.Fail(err)
		f.counts.Faults.Fail(err)
	}
}

// difference describes how the fleets differ, or returns "" if they agree. It compares each origin's answers about each
// cell, the changes that wait for a relay, all counts that each relay holds, the rows of the feed, and the stored
// counts.
func (w *sideBySide) difference() string {
	model, real := w.fleets[0], w.fleets[1]
	for at, name := range w.names {
		a, b := model.regions[at], real.regions[at]
		if d := differentTotals(a.nodes[0].way, b.nodes[0].way, w.cells); d != "" {
			return name + ": " + d
		}
		if d := differentChanges(a.nodes[0].way, b.nodes[0].way); d != "" {
			return name + ": " + d
		}
		for n := range a.relays {
			known, want := relay.Known(b.relays[n]), relay.Known(a.relays[n])
			if d := differentMaps(known, want); d != "" {
				return fmt.Sprintf("relay %d of %s: %s", n, name, d)
			}
		}
		of := store.Stream{Region: name}
		if got, want := real.feed.Rows(of), model.feed.Rows(of); !slices.EqualFunc(got, want, sameRow) {
			return fmt.Sprintf("feed of %s: %d rows, and the model %d:\n%v\n%v", name, len(got), len(want), got, want)
		}
	}
	if got, want := real.counts.Rows(), model.counts.Rows(); !slices.Equal(got, want) {
		return fmt.Sprintf("stored counts are %v, and the model's %v", got, want)
	}
	return ""
}

// sameRow ignores the writer, which each relay draws.
func sameRow(a, b store.FeedRow) bool {
	return a.Sequence == b.Sequence && a.Snapshot == b.Snapshot && a.Last == b.Last && bytes.Equal(a.Payload, b.Payload)
}

func differentMaps(got, want map[window.Cell]map[string]int64) string {
	for c := range maps.Keys(got) {
		if !maps.Equal(got[c], want[c]) {
			return fmt.Sprintf("of %v it has %v, and the model %v", c, got[c], want[c])
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("it has %d cells, and the model %d", len(got), len(want))
	}
	return ""
}

func differentTotals(model, real store.FullOrigin, cells []window.Cell) string {
	a, err := model.Read(context.Background(), cells)
	b, err2 := real.Read(context.Background(), cells)
	if err != nil || err2 != nil {
		return fmt.Sprint("read: ", err2, ", and the model ", err)
	}
	for i, c := range cells {
		if x, y := a.Totals[i], b.Totals[i]; x.Region != y.Region || x.Foreign != y.Foreign {
			return fmt.Sprintf("the origin has %d and %d of %v, and the model %d and %d", y.Region, y.Foreign, c, x.Region,
				x.Foreign)
		}
	}
	return ""
}

func differentChanges(model, real store.FullOrigin) string {
	a, err := model.Changes(context.Background(), 0, 5_000)
	b, err2 := real.Changes(context.Background(), 0, 5_000)
	for _, all := range []store.Changes{a, b} {
		slices.SortFunc(all.Cells, func(x, y store.Change) int { return x.Cell.Compare(y.Cell) })
	}
	if err != nil || err2 != nil || a.Healed != b.Healed || !slices.Equal(a.Cells, b.Cells) {
		return fmt.Sprintf("changes are %v, %v, and the model's %v, %v", b, err2, a, err)
	}
	return ""
}

// Relays do the same over a Redis server as over memstore's origin: after each interval of a drawn history both fleets
// have the same origins, relays, feed rows and stored counts.
func TestRelaysOverRedisDoAsOverTheModel(t *testing.T) {
	w := newSideBySide(t, "ap", "eu", "us")
	compared, drawn := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w.begin(rapid.Bool().Draw(t, "peers"))
		defer w.mysql(false)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.drawStep(t)
			drawn++
			d := w.difference()
			if w.busy {
				return
			}
			compared++
			if d != "" {
				t.Fatal(d)
			}
		}
	})
	t.Logf("%d of %d states were compared, the others of a busy machine", compared, drawn)
}

func (w *sideBySide) drawStep(t *rapid.T) {
	at, n := rapid.IntRange(0, len(w.names)-1).Draw(t, "region"), rapid.IntRange(0, 1).Draw(t, "node")
	what := rapid.SampledFrom([]string{"send", "send", "send", "send", "intervals", "intervals", "intervals", "pass",
		"send amid a pass", "wipe amid a pass", "take over", "take over", "wipe", "fill", "empty", "mysql", "mysql", "seconds",
		"windows", "many"}).Draw(t, "step")
	switch what {
	case "send":
		c, cost, limit := w.drawCost(t)
		w.send(at, n, cost, limit, c)
	case "intervals":
		w.intervals(rapid.IntRange(1, 4).Draw(t, "intervals"))
	case "pass":
		w.pass(at, n)
	case "send amid a pass":
		c, cost, limit := w.drawCost(t)
		w.send(at, n, 1, 100, c) // a change that the relay takes
		w.countIn([]window.Cell{c})
		w.passAmid(at, n, rapid.IntRange(1, 9).Draw(t, "before call"), func(r *twinRegion) {
			w.sendFrom(r.nodes[n], cost, limit, []window.Cell{c})
		})
	case "wipe amid a pass":
		// more cells are sent in several calls, in no certain order
		if call := rapid.IntRange(1, 9).Draw(t, "before call"); !w.full[at] && len(w.cells) < 1_000 {
			w.passAmid(at, n, call, func(r *twinRegion) { r.wipe() })
		}
	case "take over":
		w.takeOver(at, n, rapid.Bool().Draw(t, "released"))
	case "wipe":
		w.wipe(at)
	case "fill":
		w.fill(at)
	case "empty":
		w.setFull(at, false)
	case "mysql":
		w.mysql(rapid.Bool().Draw(t, "away"))
	case "seconds":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
	case "windows":
		if rapid.IntRange(0, 2).Draw(t, "all windows") == 0 {
			w.windowsPass(rapid.IntRange(1, 2).Draw(t, "pairs"))
		}
	case "many":
		if rapid.IntRange(0, 29).Draw(t, "many") == 0 { // states of so many cells take long to compare
			w.sendMany(at)
		}
	}
}

func (w *sideBySide) drawCost(t *rapid.T) (c window.Cell, cost, limit int64) {
	c = w.cell(rapid.SampledFrom([]string{"a", "b", "\xff: {%"}).Draw(t, "identifier"),
		rapid.IntRange(1, 2).Draw(t, "windows"), rapid.SampledFrom([]int{-3, -1, 0, 0, 0, 0, 0, 0, 1}).Draw(t, "from now"))
	cost = rapid.SampledFrom([]int64{0, 1, 2, 5, 40, 200, store.CountMax}).Draw(t, "cost")
	limit = rapid.SampledFrom([]int64{0, 1, 50, 100, 100, store.CountMax}).Draw(t, "limit")
	return c, cost, limit
}

// sendMany counts in more cells than a page of changes holds.
func (w *sideBySide) sendMany(at int) {
	var cells []window.Cell
	for i := range store.ChangesPage + 100 {
		cells = append(cells, w.cell(fmt.Sprint("k", i), 1, 0))
	}
	for part := range slices.Chunk(cells, store.ChunkMax) {
		w.send(at, 0, 1, 100, part...)
	}
}

// The comparison finds a fault that memstore once hid, and that made relays fall behind: an origin that returns its
// changes a page at a time.
func TestRelaysSideBySideFindAPageOfChanges(t *testing.T) {
	w := newSideBySide(t, "eu", "us")
	for _, paged := range []bool{false, true} {
		w.paged = paged
		for w.busy = true; w.busy; {
			w.begin(false)
			w.intervals(1)
			w.sendMany(0)
			w.intervals(2)
			if d := w.difference(); !w.busy && (d != "") != paged {
				t.Errorf("with pages %v: %q", paged, d)
			}
		}
	}
}
