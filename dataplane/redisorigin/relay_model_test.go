package redisorigin_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/rewind"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// countTwins are a server and memstore's Origin as its model, each with two ways to it, as two processes have. The same
// calls go to both, and each answer is compared. Time passes in both by whole windows: in the model by its clock, and
// on the server by moving all of its data back in time, so a model's cell has another name on the server: see real. The
// exact time at which a cell is dropped after its grace differs between the two, in the first fifth of a window. So
// each history uses twins whose grace ends at another time.
type countTwins struct {
	*rapid.T
	test      *testing.T
	raw       *redis.Client
	reals     []*redisorigin.Origin
	models    []*memstore.Origin
	announced [2]*announced // by the server's and the model's listener

	began  time.Time
	ahead  *time.Duration // of the model's clock
	stream uint64         // of the first way; the second's is the next
	number [2]int64       // of each way's last call

	epochs map[store.Epoch]store.Epoch // the model's, by the server's
	known  []store.Epoch               // the server's, in the order in which they were answered
	totals map[window.Cell]store.Change
}

// announced is how often each total was announced.
type announced struct {
	mu  sync.Mutex
	all map[store.Foreign]int
}

func (a *announced) add(totals []store.Foreign) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range totals {
		a.all[f]++
	}
}

// take returns the announcements that were received, without those of end's cell, once end or a larger count of its
// cell was received. Smaller counts belong to earlier ends, whose announcements may come late.
func (a *announced) take(end store.Foreign) (all map[store.Foreign]int, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for f := range a.all {
		ended = ended || f.Cell == end.Cell && f.Count >= end.Count
	}
	if ended {
		all, a.all = a.all, make(map[store.Foreign]int)
		maps.DeleteFunc(all, func(f store.Foreign, _ int) bool { return f.Cell.Workspace == end.Cell.Workspace })
	}
	return all, ended
}

// Windows last this long, or twice as long.
const twinWindow = 10 * time.Second

// newCountTwins starts listeners at both, which run until the test ends.
func newCountTwins(t *testing.T, grace time.Duration) *countTwins {
	server := servers.RedisForTest(t)
	w := &countTwins{test: t, raw: rawClient(t, server.Addr()), ahead: new(time.Duration)}
	first := memstore.NewOrigin(memstore.OriginOptions{Grace: grace,
		Clock: func() time.Time { return time.Now().Add(*w.ahead) }})
	w.models = []*memstore.Origin{first, first.Client()}
	for range w.models {
		w.reals = append(w.reals, openAt(t, server.Addr(), redisorigin.Options{Grace: grace}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	t.Cleanup(func() { cancel(); listening.Wait() })
	ready := store.Foreign{Cell: endCell(0)}
	for i, h := range []store.FullOrigin{w.reals[0], w.models[0]} {
		w.announced[i] = &announced{all: make(map[store.Foreign]int)}
		listening.Go(func() { _ = h.Listen(ctx, 0, w.announced[i].add) })
		await.True(t, "it listens", func() bool {
			ready.Count++
			if _, err := h.Apply(t.Context(), 0, []store.Foreign{ready}); err != nil {
				t.Fatal(err)
			}
			_, ok := w.announced[i].take(store.Foreign{Cell: ready.Cell})
			return ok
		})
	}
	return w
}

// begin empties both for a history.
func (w *countTwins) begin(t *rapid.T) {
	w.T = t
	w.stream += 2
	w.number = [2]int64{}
	w.epochs, w.known = make(map[store.Epoch]store.Epoch), nil
	w.totals = make(map[window.Cell]store.Change)
	*w.ahead = 0
	w.wipe()
	for i := range w.reals { // a way forgets earlier histories
		for _, h := range []store.FullOrigin{w.models[i], w.reals[i]} {
			if _, err := h.Changes(w.Context(), 0, 1); err != nil {
				w.Fatal(err)
			}
		}
	}
	w.began = time.Now()
}

// late reports whether a history takes too long to check which cells are dropped.
func (w *countTwins) late() bool { return time.Since(w.began) > slow }

// differ ends a history whose answers differ: it fails, unless it is late, because then either side may have forgotten
// more than the other.
func (w *countTwins) differ(format string, args ...any) {
	if w.late() {
		w.Skipf(format, args...) // rapid draws another history
	}
	w.Fatalf(format, args...)
}

func (w *countTwins) wipe() {
	w.models[0].Wipe()
	if err := w.raw.FlushAll(w.Context()).Err(); err != nil {
		w.Fatal(err)
	}
}

func (w *countTwins) pass() {
	// less in a history than store.StreamKeptFor, after which chunks are sent again, with cells of before
	d := rapid.SampledFrom([]time.Duration{2 * twinWindow, 4 * twinWindow, 6 * twinWindow}).Draw(w.T, "pass")
	*w.ahead += d
	w.Logf("%v pass", d)
	if err := rewind.Counts(w.Context(), w.raw, d); err != nil {
		w.Fatal(err)
	}
}

// real returns the server's cell for a model's.
func (w *countTwins) real(c window.Cell) window.Cell {
	c.Sequence -= w.ahead.Milliseconds() / c.DurationMs()
	return c
}

func (w *countTwins) model(c window.Cell) window.Cell {
	c.Sequence += w.ahead.Milliseconds() / c.DurationMs()
	return c
}

// cell draws a model's cell: past, and perhaps dropped, current, or future.
func (w *countTwins) cell() window.Cell {
	key := window.Key{Workspace: "w", Namespace: rapid.SampledFrom([]string{"n", "\xff: {%"}).Draw(w.T, "namespace"),
		Identifier: rapid.SampledFrom([]string{"a", "b"}).Draw(w.T, "identifier"),
		Duration:   rapid.SampledFrom([]time.Duration{twinWindow, 2 * twinWindow}).Draw(w.T, "duration")}
	now := window.Sequence(w.began.Add(*w.ahead).UnixMilli(), key.DurationMs())
	return window.Cell{Key: key, Sequence: now + rapid.SampledFrom([]int64{-40, -5, -4, -3, -2, 0, 0, 0, 1}).Draw(w.T, "sequence")}
}

func (w *countTwins) cells() (models, reals []window.Cell) {
	for range rapid.IntRange(1, 4).Draw(w.T, "cells") {
		models = append(models, w.cell())
		reals = append(reals, w.real(models[len(models)-1]))
	}
	return models, reals
}

func (w *countTwins) count(label string) int64 {
	return rapid.SampledFrom([]int64{0, 0, 1, 2, 5, 40, store.CountMax - 1, store.CountMax, 1 << 60}).Draw(w.T, label)
}

// epoch returns 0, an earlier epoch, or the current epoch, of both.
func (w *countTwins) epoch() (model, real store.Epoch) {
	if len(w.known) == 0 || rapid.IntRange(0, 3).Draw(w.T, "no epoch") == 0 {
		return 0, 0
	}
	real = w.known[len(w.known)-1]
	if rapid.IntRange(0, 4).Draw(w.T, "an earlier epoch") == 0 {
		real = rapid.SampledFrom(w.known).Draw(w.T, "epoch")
	}
	return w.epochs[real], real
}

// sameEpoch records that two epochs stand for each other from now on.
func (w *countTwins) sameEpoch(what string, model, real store.Epoch) {
	if known, ok := w.epochs[real]; ok && known != model || !ok && slices.Contains(slices.Collect(maps.Values(w.epochs)), model) {
		w.differ("%s: in epoch %d, and the model in %d; epochs so far are %v", what, real, model, w.epochs)
	}
	if _, ok := w.epochs[real]; !ok {
		w.epochs[real] = model
		w.known = append(w.known, real)
	}
}

// sameErr fails if the errors of a call differ between both.
func (w *countTwins) sameErr(what string, model, real error) (ok bool) {
	for _, err := range []error{store.ErrEpoch, store.ErrNotApplied} {
		if errors.Is(model, err) != errors.Is(real, err) {
			w.differ("%s: %v, and the model %v", what, real, model)
		}
	}
	if (model == nil) != (real == nil) {
		w.differ("%s: %v, and the model %v", what, real, model)
	}
	return real == nil
}

func (w *countTwins) sameReply(what string, model, real store.Reply) {
	if len(model.Totals) != len(real.Totals) || len(model.Behind) != len(real.Behind) ||
		len(model.Behind) > 0 && model.Behind[0].Number != real.Behind[0].Number {
		w.differ("%s: %+v, want %+v", what, real, model)
	}
	refused := model.Now.IsZero() && real.Now.IsZero() // all of it
	if d := model.Now.Sub(real.Now) - *w.ahead; d.Abs() > time.Second && !refused {
		w.differ("%s: it is %v, want %v ahead of %v", what, real.Now, *w.ahead, model.Now)
	}
	for i := range real.Totals {
		a, b := model.Totals[i], real.Totals[i]
		if a.Epoch != 0 || b.Epoch != 0 {
			w.sameEpoch(what, a.Epoch, b.Epoch)
		}
		w.sameErr(fmt.Sprintf("%s, cell %d", what, i), a.Err, b.Err)
		if a.Err == nil && (a.Region != b.Region || a.Foreign != b.Foreign) {
			w.differ("%s, cell %d: %+v, want %+v", what, i, b, a)
		}
	}
}

// way returns one of the two ways to both.
func (w *countTwins) way() int { return rapid.IntRange(0, 1).Draw(w.T, "way") }

func (w *countTwins) read() {
	at := w.way()
	models, reals := w.cells()
	w.readBy(at, models, reals)
}

func (w *countTwins) readBy(at int, models, reals []window.Cell) {
	model, err := w.models[at].Read(w.Context(), models)
	real, err2 := w.reals[at].Read(w.Context(), reals)
	if w.sameErr("read", err, err2) {
		w.sameReply(fmt.Sprintf("read %v", models), model, real)
	}
}

// next returns the number of a way's next call: mostly a new number.
func (w *countTwins) next(at int) int64 {
	n := w.number[at] + 1
	if rapid.IntRange(0, 5).Draw(w.T, "an old number") == 0 {
		n = max(1, n-rapid.Int64Range(1, 3).Draw(w.T, "older by"))
	}
	w.number[at] = max(w.number[at], n)
	return n
}

// send sends a chunk. With bounds, the chunk can also have bounded costs among others.
func (w *countTwins) send(bounds bool) {
	at := w.way()
	models, reals := w.cells()
	model := store.Chunk{Stream: w.stream + uint64(at), Number: w.next(at)}
	model.Repeats = rapid.IntRange(0, 4).Draw(w.T, "repeats") == 0
	real := model
	if rapid.Bool().Draw(w.T, "after") {
		w.readBy(at, models, reals) // a way has the epochs of its own answers in After
		e, f := w.epoch()
		mark := store.Mark{Epoch: e, Number: max(0, model.Number-rapid.Int64Range(0, 3).Draw(w.T, "follows"))}
		mark.Ask = rapid.Bool().Draw(w.T, "ask")
		model.After = []store.Mark{mark}
		mark.Epoch = f
		real.After = []store.Mark{mark}
	}
	for i := range models {
		e, f := w.epoch()
		c := store.Cost{Cell: models[i], Epoch: e, Add: w.count("add"), Limit: w.count("limit")}
		if bounds && rapid.IntRange(0, 4).Draw(w.T, "bounded") > 0 {
			c.Add, c.AtMost = max(1, c.Add), max(-1, w.count("at most")-1)
		} else if rapid.IntRange(0, 3).Draw(w.T, "restores") == 0 {
			c.Restore, c.Known = w.count("restore"), w.count("known")
		}
		model.Costs = append(model.Costs, c)
		c.Cell, c.Epoch = reals[i], f
		real.Costs = append(real.Costs, c)
	}
	w.Logf("send %+v", model)
	a, err := w.models[at].Send(w.Context(), model)
	b, err2 := w.reals[at].Send(w.Context(), real)
	if model.Bounded() { // parts of it may fail alone
		a.Totals, b.Totals = w.each(a.Totals, err, len(models)), w.each(b.Totals, err2, len(models))
	} else if !w.sameErr("send", err, err2) {
		return
	}
	w.sameReply(fmt.Sprintf("send %+v", model), a, b)
	for i := range a.Totals {
		if model.Costs[i].AtMost != 0 && a.Totals[i].Added != b.Totals[i].Added {
			w.differ("send %+v, cost %d: %+v, want %+v", model, i, b.Totals[i], a.Totals[i])
		}
	}
}

// each returns the totals of a chunk of n costs, which all have its error if it failed.
func (w *countTwins) each(totals []store.Total, err error, n int) []store.Total {
	if err != nil {
		return slices.Repeat([]store.Total{{Err: err}}, n)
	}
	return totals
}

func (w *countTwins) changes() {
	at, max := w.way(), rapid.SampledFrom([]int{1, 3, 50}).Draw(w.T, "max")
	a, err := w.models[at].Changes(w.Context(), 0, max)
	b, err2 := w.reals[at].Changes(w.Context(), 0, max)
	if !w.sameErr("changes", err, err2) {
		return
	}
	w.sameEpoch("changes", a.Epoch, b.Epoch)
	if len(a.Cells) != len(b.Cells) || a.More != b.More || a.Healed != b.Healed {
		w.differ("at most %d changes: %+v, want %+v", max, b, a)
	}
	for i := range b.Cells {
		b.Cells[i].Cell = w.model(b.Cells[i].Cell)
		w.totals[b.Cells[i].Cell] = b.Cells[i]
	}
	if !a.More && !sameChanges(a.Cells, b.Cells) {
		w.differ("changes are %+v, want %+v", b.Cells, a.Cells)
	}
}

func sameChanges(a, b []store.Change) bool {
	for _, all := range [][]store.Change{a, b} {
		slices.SortFunc(all, func(a, b store.Change) int { return a.Cell.Compare(b.Cell) })
	}
	return slices.Equal(a, b)
}

// ack removes some of the changes seen, unchanged or slightly different.
func (w *countTwins) ack() {
	var models, reals []store.Change
	for _, c := range slices.SortedFunc(maps.Keys(w.totals), window.Cell.Compare) {
		change := w.totals[c]
		if rapid.IntRange(0, 3).Draw(w.T, "ack") == 0 {
			continue
		}
		if rapid.IntRange(0, 5).Draw(w.T, "otherwise") == 0 && change.Total < store.CountMax { // no total is larger
			change.Total++
		}
		models = append(models, change)
		change.Cell = w.real(change.Cell)
		reals = append(reals, change)
	}
	at := w.way()
	w.sameErr("ack", w.models[at].Ack(w.Context(), 0, models), w.reals[at].Ack(w.Context(), 0, reals))
}

func (w *countTwins) scan() {
	all := func(h store.FullOrigin) (cells []store.Change) {
		for cursor := uint64(0); ; {
			page, next, err := h.Scan(w.Context(), 0, cursor, 10)
			if err != nil {
				w.Fatal(err)
			}
			cells = append(cells, page...)
			if cursor = next; cursor == 0 {
				return cells
			}
		}
	}
	at := w.way()
	a, b := all(w.models[at]), all(w.reals[at])
	for i := range b {
		b[i].Cell = w.model(b[i].Cell)
	}
	sameChanges(a, b)
	if a, b = slices.Compact(a), slices.Compact(b); !slices.Equal(a, b) {
		w.differ("the scan finds %+v, want %+v", b, a)
	}
}

func (w *countTwins) apply() {
	cells, _ := w.cells()
	var models, reals []store.Foreign
	for _, c := range cells {
		f := store.Foreign{Cell: c, Count: w.count("foreign")}
		models = append(models, f)
		f.Cell = w.real(c)
		reals = append(reals, f)
	}
	at := w.way()
	w.Logf("apply %+v", models)
	a, err := w.models[at].Apply(w.Context(), 0, models)
	b, err2 := w.reals[at].Apply(w.Context(), 0, reals)
	if w.sameErr("apply", err, err2); a != b {
		w.differ("apply %+v: %d raised, want %d", models, b, a)
	}
	w.sameAnnouncements()
}

// sameAnnouncements compares the announcements of both since the last call.
func (w *countTwins) sameAnnouncements() {
	end := store.Foreign{Cell: endCell(*w.ahead)}
	announced := [2]map[store.Foreign]int{}
	for i, h := range []store.FullOrigin{w.reals[0], w.models[0]} {
		end.Count = time.Now().UnixMicro()
		if _, err := h.Apply(w.Context(), 0, []store.Foreign{end}); err != nil {
			w.Fatal(err)
		}
		await.True(w.test, "the end is heard", func() (ok bool) {
			announced[i], ok = w.announced[i].take(end)
			return ok
		})
	}
	real := make(map[store.Foreign]int)
	for f, n := range announced[0] {
		f.Cell = w.model(f.Cell)
		real[f] = n
	}
	if !maps.Equal(real, announced[1]) {
		w.differ("announced: %+v, want %+v", real, announced[1])
	}
}

// endCell returns a cell that is not in any history and is alive in both, whatever time has passed.
func endCell(ahead time.Duration) window.Cell {
	c := cellNow("end", time.Hour)
	c.Workspace, c.Sequence = "end", c.Sequence+int64(ahead/time.Hour)+2
	return c
}

func (w *countTwins) raise() {
	model, real := w.epoch()
	cells, _ := w.cells()
	var models, reals []store.Change
	for _, c := range cells {
		change := store.Change{Cell: c, Total: w.count("known"), Limit: w.count("limit")}
		models = append(models, change)
		change.Cell = w.real(c)
		reals = append(reals, change)
	}
	at := w.way()
	w.Logf("raise %+v", models)
	w.sameErr("raise", w.models[at].Raise(w.Context(), 0, model, models), w.reals[at].Raise(w.Context(), 0, real, reals))
}

func (w *countTwins) healed() {
	model, real := w.epoch()
	at := w.way()
	w.sameErr("healed", w.models[at].Healed(w.Context(), 0, model), w.reals[at].Healed(w.Context(), 0, real))
}

func (w *countTwins) lease() {
	holder := rapid.SampledFrom([]string{"a", "b"}).Draw(w.T, "holder")
	if rapid.IntRange(0, 4).Draw(w.T, "release") == 0 {
		w.sameErr("release", w.models[0].Release(w.Context(), 0, holder), w.reals[0].Release(w.Context(), 0, holder))
		return
	}
	ttl := rapid.SampledFrom([]time.Duration{30, 50, 61}).Draw(w.T, "ttl") * time.Second // no time that passes
	a, err := w.models[0].Lease(w.Context(), 0, holder, ttl)
	b, err2 := w.reals[0].Lease(w.Context(), 0, holder, ttl)
	if w.sameErr("lease", err, err2); a.Holder != b.Holder || (a.Left-b.Left).Abs() > time.Second {
		w.differ("lease of %s for %v: %+v, want %+v", holder, ttl, b, a)
	}
}

// memstore gives the same answers to any history of calls by nodes and relays, whatever expires or is emptied in
// between.
func TestCountsAgreeWithTheirModel(t *testing.T) {
	const half = twinWindow / 2
	all := map[bool]*countTwins{false: newCountTwins(t, 3*twinWindow), true: newCountTwins(t, 3*twinWindow+half)}
	rapid.Check(t, func(t *rapid.T) {
		at := time.Duration(time.Now().UnixMilli()%twinWindow.Milliseconds()) * time.Millisecond
		w := all[at < half/2 || at > twinWindow-2*slow]
		w.begin(t)
		plain, bounded := func() { w.send(false) }, func() { w.send(true) }
		calls := []func(){plain, plain, plain, bounded, w.read, w.changes, w.ack, w.scan, w.apply, w.raise, w.healed, w.lease}
		for range rapid.IntRange(1, 30).Draw(t, "calls") {
			switch what := rapid.IntRange(0, 2*len(calls)+2).Draw(t, "what"); {
			case w.late():
				return
			case what == 0:
				w.wipe()
			case what <= 2:
				w.pass()
			default:
				calls[what%len(calls)]()
			}
		}
	})
}
