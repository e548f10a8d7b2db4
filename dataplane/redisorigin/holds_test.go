package redisorigin_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// holdTwins are twins of two groups.
type holdTwins struct {
	*twins
	groups  []*twinGroup
	precise bool // the window of all keys
}

type twinGroup struct {
	cells       []window.Cell // consecutive cells of a key
	records     []string
	real, model store.Epoch      // as last answered
	numbers     map[uint64]int64 // the largest that each stream was answered in these epochs
}

func newHoldTwins(t *rapid.T, real *redisorigin.Origin, raws ...*redis.Client) *holdTwins {
	w := &holdTwins{twins: newTwins(t, real, raws...), precise: rapid.Bool().Draw(t, "precise")}
	for n := range raws {
		g := &twinGroup{}
		for i := 0; g.cells == nil || len(g.records) < 2; i++ {
			cell := inTheFuture(fmt.Sprint(i))
			if g.cells == nil && real.GroupOf(&cell.Key) == n && w.model.GroupOf(&cell.Key) == n {
				for range 3 {
					g.cells = append(g.cells, cell)
					cell.Sequence++
				}
			}
			id := fmt.Sprintf("id %d:{\x00\xff}", i)
			key := store.RecordKey(id)
			if real.GroupOf(&key) == n && w.model.GroupOf(&key) == n {
				g.records = append(g.records, id)
			}
		}
		w.groups = append(w.groups, g)
	}
	return w
}

func (w *holdTwins) group() *twinGroup { return rapid.SampledFrom(w.groups).Draw(w.T, "group") }

// holds draws holds with different owners.
func (w *holdTwins) holds(g *twinGroup) (holds []store.Hold) {
	for _, owner := range []string{"a", "=a", "c", "\x00\xff \n"}[:rapid.IntRange(0, 4).Draw(w.T, "holds")] {
		c := rapid.IntRange(1, 2).Draw(w.T, "cell")
		h := store.Hold{Cell: g.cells[c], Owner: owner, Amount: rapid.Int64Range(0, 60).Draw(w.T, "amount"), TTL: w.ttl(),
			Limit: rapid.SampledFrom([]int64{0, 50, 100, 200}).Draw(w.T, "limit"),
			As:    store.HoldAs(max(1, rapid.IntRange(-1, 3).Draw(w.T, "as")) % 3)}
		if h.After = rapid.Int64Range(0, h.Amount).Draw(w.T, "after"); h.As == store.HoldNew {
			h.Before, h.Optional, h.Tentative = g.cells[c-1], w.often("optional", 3), w.often("tentative", 3)
			h.Precise = w.precise
			h.TTL = max(h.TTL, 1500*time.Millisecond)
			h.Epoch = rapid.SampledFrom([]store.Epoch{noEpoch, noEpoch, thisEpoch, thisEpoch, anotherEpoch}).Draw(w.T, "epoch")
		}
		if h.As == store.HoldForced {
			h.Epoch = rapid.SampledFrom([]store.Epoch{noEpoch, thisEpoch, anotherEpoch}).Draw(w.T, "epoch")
		}
		holds = append(holds, h)
	}
	return holds
}

// The epochs of drawn holds stand for epochs of either origin.
const (
	noEpoch store.Epoch = iota
	thisEpoch
	anotherEpoch
)

// heldIn returns a drawn call for an origin whose group was last in an epoch.
func heldIn(current store.Epoch, call store.HoldCall) store.HoldCall {
	call.After.Epoch, call.Holds = current, slices.Clone(call.Holds)
	for i := range call.Holds {
		switch h := &call.Holds[i]; h.Epoch {
		case thisEpoch:
			h.Epoch = current
		case anotherEpoch:
			h.Epoch = ^current | 1
		}
	}
	return call
}

func (w *holdTwins) record(g *twinGroup) *store.Record {
	r := &store.Record{ID: rapid.SampledFrom(g.records).Draw(w.T, "record"),
		Text: rapid.SampledFrom([]string{"x", "\x00\xff", ""}).Draw(w.T, "text"), TTL: w.ttl(),
		Settled: w.often("settled", 4)}
	for range 2 * rapid.IntRange(0, 1).Draw(w.T, "items") {
		r.Spent = append(r.Spent, rapid.Int64Range(0, 9).Draw(w.T, "spent"))
	}
	if r.Text != "" {
		kind := rapid.IntRange(0, 3).Draw(w.T, "kind")
		r.Restored, r.Withdraw = kind == 2, kind == 3
		r.TTL = max(r.TTL, 1500*time.Millisecond)
	}
	if r.Settled && (r.Text == "" || r.Withdraw) {
		r.Attempt = rapid.Uint64Range(0, 3).Draw(w.T, "attempt")
	}
	return r
}

// hold makes the same call at both.
func (w *holdTwins) hold() {
	g := w.group()
	call := store.HoldCall{Group: g.cells[0].Key, Stream: rapid.Uint64Range(1, 2).Draw(w.T, "stream")}
	if rapid.Bool().Draw(w.T, "with a record") {
		call.Record = w.record(g)
	}
	if call.Record == nil || call.Record.Text != "" && !call.Record.Withdraw {
		call.Holds = w.holds(g)
	}
	call.After.Number = max(0, g.numbers[call.Stream]-rapid.Int64Range(-1, 3).Draw(w.T, "before the last"))
	real, err := w.real.Hold(w.Context(), heldIn(g.real, call))
	model, err2 := w.model.Hold(w.Context(), heldIn(g.model, call))
	if err != nil || err2 != nil {
		w.Fatal(err, err2)
	}
	if w.late() {
		return
	}
	w.same(&call, real, model)
	if g.real != real.Epoch {
		g.real, g.model, g.numbers = real.Epoch, model.Epoch, make(map[uint64]int64)
	}
	g.numbers[call.Stream] = max(g.numbers[call.Stream], real.Number)
}

// same compares replies, but for epochs, and for times as far as both clocks were read at the same time.
func (w *holdTwins) same(call *store.HoldCall, real, model store.HoldReply) {
	text := func(r store.HoldReply) string {
		var b strings.Builder
		fmt.Fprintf(&b, "number %d, behind %t after %d, emptied %t, refused %t, record %q %v settled %t changed %t",
			r.Number, r.Behind, r.Have, r.Emptied, r.Refused, r.Record.Text, r.Record.Spent, r.Record.Settled, r.Record.Changed)
		for i, a := range r.Answers {
			if call.Holds[i].As != store.HoldNew {
				a.UsedBefore = 0 // a statement without a cell before
			}
			a.Total.Epoch = 0
			fmt.Fprintf(&b, "\n%+v", a)
		}
		return b.String()
	}
	if a, b := text(real), text(model); a != b {
		w.Fatalf("%+v, record %+v:\n%s\nwant:\n%s", *call, call.Record, a, b)
	}
	if d := real.Record.EndsMs - model.Record.EndsMs + w.ahead.Milliseconds(); model.Record.Text != "" &&
		max(d, -d) > slow.Milliseconds() {
		w.Fatalf("%+v: the record ends at %d, want %d", *call, real.Record.EndsMs, model.Record.EndsMs)
	}
}

// count adds cost that no hold counts, or cost that other regions have accepted.
func (w *holdTwins) count() {
	cell, n := rapid.SampledFrom(w.group().cells).Draw(w.T, "counted"), rapid.Int64Range(1, 20).Draw(w.T, "count")
	w.calls++
	for _, h := range []store.FullOrigin{w.real, w.model} {
		shard := h.ShardOf(&cell.Key)
		if n%2 == 0 {
			if _, err := h.Apply(w.Context(), shard, []store.Foreign{{Cell: cell, Count: n}}); err != nil {
				w.Fatal(err)
			}
			continue
		}
		call := store.Chunk{Shard: shard, Stream: 7, Number: w.calls,
			Costs: []store.Cost{{Cell: cell, Add: n, AtMost: store.CountMax}}}
		if reply, err := h.Send(w.Context(), call); err != nil || !reply.Totals[0].Added {
			w.Fatalf("%+v, %v", reply, err)
		}
	}
}

// sameChanges compares the changes that a relay takes.
func (w *holdTwins) sameChanges() {
	var all [2]string
	for i, h := range []store.FullOrigin{w.real, w.model} {
		for shard := range h.Shards() {
			changes, err := h.Changes(w.Context(), shard, 99)
			if err != nil {
				w.Fatal(err)
			}
			slices.SortFunc(changes.Cells, func(a, b store.Change) int { return a.Cell.Compare(b.Cell) })
			all[i] += fmt.Sprintln(changes.Cells)
		}
	}
	if all[0] != all[1] && !w.late() {
		w.Fatalf("the changes are\n%s, want\n%s", all[0], all[1])
	}
}

// sameTotals compares the totals of all cells, with their histories.
func (w *holdTwins) sameTotals() {
	for _, g := range w.groups {
		var all [2]string
		for i, h := range []store.FullOrigin{w.real, w.model} {
			reply, err := h.Read(w.Context(), g.cells)
			if err != nil {
				w.Fatal(err)
			}
			for _, total := range reply.Totals {
				total.Epoch = 0
				all[i] += fmt.Sprintf("%+v\n", total)
			}
		}
		if all[0] != all[1] && !w.late() {
			w.Fatalf("the totals are\n%s, want\n%s", all[0], all[1])
		}
	}
}

// Any history of reservations is answered as memstore answers it.
func TestReservationsAgreeWithTheirModel(t *testing.T) {
	a, b := servers.RedisForTest(t).Addr(), servers.RedisForTest(t).Addr()
	real := openOrigin(t, "a=redis://"+a+" b=redis://"+b, redisorigin.Options{})
	raws := []*redis.Client{rawClient(t, a), rawClient(t, b)}
	rapid.Check(t, func(t *rapid.T) {
		w := newHoldTwins(t, real, raws...)
		w.history(true, w.hold, w.hold, w.hold, w.hold, w.count)
		w.sameChanges()
		w.sameTotals()
	})
}

// newHold fits a limit, and counts nothing once it has ended.
func newHold(owner string, c window.Cell, amount, limit int64) store.Hold {
	before := c
	before.Sequence--
	return store.Hold{Cell: c, Before: before, Owner: owner, Amount: amount, Limit: limit, TTL: time.Hour,
		As: store.HoldNew}
}

// ended states that a hold has ended, and the cost that counts from then on.
func ended(owner string, c window.Cell, after int64) store.Hold {
	return store.Hold{Cell: c, Owner: owner, Amount: after, After: after}
}

func holdCall(holds ...store.Hold) store.HoldCall {
	return store.HoldCall{Group: holds[0].Cell.Key, Stream: 1, Holds: holds}
}

func hold(t testing.TB, h *redisorigin.Origin, holds ...store.Hold) store.HoldReply {
	t.Helper()
	reply, err := h.Hold(t.Context(), holdCall(holds...))
	if err != nil || len(reply.Answers) != len(holds) {
		t.Fatalf("%+v, %v", reply, err)
	}
	return reply
}

// inTheFuture returns a cell that has not begun, so it does not end during a test, and the whole previous cell counts.
func inTheFuture(identifier string) window.Cell {
	c := cellNow(identifier, 24*time.Hour)
	c.Sequence++
	return c
}

// fill opens HoldsMax holds of 1.
func fill(t testing.TB, h *redisorigin.Origin, c window.Cell) {
	t.Helper()
	for at := 0; at < store.HoldsMax; {
		var holds []store.Hold
		for range store.HoldCallMax {
			holds = append(holds, newHold(fmt.Sprint(at), c, 1, 1<<20))
			at++
		}
		if reply := hold(t, h, holds...); reply.Refused {
			t.Fatalf("%d holds: %+v", at, reply.Answers[0])
		}
	}
}

// A call ends a bounded number of holds whose time has come. A refused call ends as many, so that a new hold fits in
// the end.
func TestHoldsWhoseTimeHasComeMakeRoom(t *testing.T) {
	raw := rawClient(t, servers.RedisForTest(t).Addr())
	real := openAt(t, raw.Options().Addr, redisorigin.Options{})
	c := inTheFuture("k")
	fill(t, real, c)
	whole := newHold("whole", c, store.HoldsMax, store.HoldsMax)
	if reply := hold(t, real, whole); !reply.Refused || !errors.Is(reply.Answers[0].Total.Err, store.ErrHolds) {
		t.Errorf("one more than HoldsMax: %+v", reply)
	}
	pass(t, raw, time.Hour+time.Second)
	calls, last := 0, int64(store.HoldsMax)
	for reply := hold(t, real, whole); reply.Refused; reply = hold(t, real, whole) {
		if calls++; reply.Answers[0].Used >= last {
			t.Fatalf("after %d calls the holds still count %d", calls, last)
		}
		last = reply.Answers[0].Used
	}
	if calls < 10 {
		t.Errorf("%d holds have ended in %d calls", store.HoldsMax, calls)
	}
	if got := regionOf(t, real, c); got != store.HoldsMax {
		t.Errorf("the total is %d, want %d", got, store.HoldsMax)
	}
}

// HoldsMax counts open holds alone, and as many that have ended are remembered.
func TestHoldsThatHaveEndedAreRememberedUpToHoldsMax(t *testing.T) {
	raw := rawClient(t, servers.RedisForTest(t).Addr())
	real := openAt(t, raw.Options().Addr, redisorigin.Options{})
	c := inTheFuture("k")
	for round := range 2 {
		for at := range store.HoldsMax / store.HoldCallMax {
			var made, settled []store.Hold
			for i := range store.HoldCallMax {
				owner := fmt.Sprint(round, at, ":", i)
				made, settled = append(made, newHold(owner, c, 1, 1<<20)), append(settled, ended(owner, c, 0))
			}
			if reply := hold(t, real, made...); reply.Refused {
				t.Fatalf("round %d, call %d: %+v", round, at, reply.Answers[0])
			}
			hold(t, real, settled...)
		}
	}
	for name, most := range map[string]int64{"holds": store.HoldsMax + 4, "ended": store.HoldsMax, "open": 0} {
		key := strings.Replace(real.Key(c), "{origin}", "{origin}:"+name, 1)
		if n := raw.HLen(t.Context(), key).Val() + raw.ZCard(t.Context(), key).Val(); n != most {
			t.Errorf("%s has %d fields, want %d", key, n, most)
		}
	}
	pass(t, raw, store.HoldKeptFor)
	const calls = store.HoldsMax / 100
	for i := range calls {
		hold(t, real, ended(fmt.Sprint("more", i), c, 0))
	}
	key := strings.Replace(real.Key(c), "{origin}", "{origin}:holds", 1)
	if n := raw.HLen(t.Context(), key).Val(); n != calls+4 {
		t.Errorf("%s has %d fields after HoldKeptFor, want %d", key, n, calls+4)
	}
}

// The cost that a tentative hold counts after its time is in the total after the next statement about its cell. It is
// added once, even if a call about the next window has ended the hold.
func TestATentativeHoldThatHasEndedIsInTheTotalOnce(t *testing.T) {
	raw := rawClient(t, servers.RedisForTest(t).Addr())
	real := openAt(t, raw.Options().Addr, redisorigin.Options{})
	c := inTheFuture("k")
	after := c
	after.Sequence++
	tentative := newHold("a", c, 9, 100)
	tentative.After, tentative.TTL, tentative.Tentative = 9, time.Second, true
	hold(t, real, tentative)
	pass(t, raw, 2*time.Second)
	if got := hold(t, real, newHold("b", after, 1, 100)).Answers[0].UsedBefore; got != 9 {
		t.Errorf("the cell before counts %d, want 9", got)
	}
	for range 3 {
		if a := hold(t, real, tentative).Answers[0]; a.Total.Region != 9 || !a.Held {
			t.Errorf("%+v, want a total of 9", a)
		}
	}
}

// A refused call writes nothing, and neither does a call of a stream that the origin is behind.
func TestARefusedCallWritesNothing(t *testing.T) {
	raw := rawClient(t, servers.RedisForTest(t).Addr())
	real := openAt(t, raw.Options().Addr, redisorigin.Options{})
	c, junk, room := inTheFuture("k"), inTheFuture("junk"), inTheFuture("room")
	command(t, raw, "HSET", real.Key(junk), "a", "x")
	reply := hold(t, real, newHold("first", c, 60, 100))
	writes := func() string { return infoField(t, raw, "rdb_changes_since_last_save") }
	before := writes()
	behind := holdCall(newHold("a", room, 1, 100))
	behind.After = store.Mark{Epoch: reply.Epoch, Number: 2}
	emptied := holdCall(newHold("a", room, 1, 100))
	emptied.Holds[0].Epoch = reply.Epoch ^ 1
	recorded := holdCall(newHold("a", room, 1, 100), newHold("b", c, 41, 100))
	recorded.Record = &store.Record{ID: "id", Text: "x", TTL: time.Hour}
	for name, call := range map[string]store.HoldCall{
		"does not fit":          holdCall(newHold("a", room, 1, 100), newHold("b", c, 41, 100)),
		"does not fit together": holdCall(newHold("a", c, 21, 100), newHold("b", c, 20, 100)),
		"a cell that is junk":   holdCall(newHold("a", room, 1, 100), newHold("b", junk, 1, 100)),
		"with a record":         recorded,
		"behind":                behind,
		"of another epoch":      emptied,
		"no statement":          {Group: c.Key, Stream: 1},
	} {
		got, err := real.Hold(t.Context(), call)
		if err != nil || got.Number != 0 || got.Refused != (len(call.Holds) == 2) || got.Behind != (name == "behind") ||
			got.Emptied != (name == "of another epoch") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if after := writes(); after != before {
			t.Errorf("%s: %s changes, were %s", name, after, before)
		}
	}
	if got := hold(t, real, newHold("b", c, 40, 100)); got.Refused || got.Number != 2 {
		t.Errorf("then one that fits: %+v", got)
	}
}

func infoField(t testing.TB, raw *redis.Client, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(raw.Info(t.Context()).Val(), name+":")
	if !ok {
		t.Fatalf("INFO has no %s", name)
	}
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// A full server takes no part of a call.
func TestAFullServerTakesNoReservation(t *testing.T) {
	raw := rawClient(t, servers.RedisForTest(t).Addr())
	real := openAt(t, raw.Options().Addr, redisorigin.Options{})
	c := inTheFuture("k")
	hold(t, real, newHold("first", c, 60, 100))
	before := infoField(t, raw, "rdb_changes_since_last_save")
	call := holdCall(ended("first", c, 0), newHold("second", c, 100, 100))
	call.Record = &store.Record{ID: "id", Text: "x", TTL: time.Hour}
	command(t, raw, "CONFIG", "SET", "maxmemory", "1")
	if reply, err := real.Hold(t.Context(), call); err == nil {
		t.Errorf("a full server: %+v", reply)
	}
	command(t, raw, "CONFIG", "SET", "maxmemory", "0")
	if after := infoField(t, raw, "rdb_changes_since_last_save"); after != before {
		t.Errorf("a full server has made %s changes, had %s", after, before)
	}
	if reply, err := real.Hold(t.Context(), call); err != nil || reply.Refused || reply.Number != 2 {
		t.Errorf("the same call, with room: %+v, %v", reply, err)
	}
}

// A window after junk begins with nothing, and junk takes no statement.
func TestJunkCountsNothingAndTakesNoHold(t *testing.T) {
	raw := rawClient(t, servers.RedisForTest(t).Addr())
	real := openAt(t, raw.Options().Addr, redisorigin.Options{})
	before := inTheFuture("k")
	add(t, real, store.Cost{Cell: before, Add: 5})
	command(t, raw, "HSET", real.Key(before), "a", "x")
	c := before
	c.Sequence++
	if reply := hold(t, real, newHold("a", c, 5, 5)); reply.Refused || reply.Answers[0].UsedBefore != 0 {
		t.Errorf("after junk: %+v", reply)
	}
	reply := hold(t, real, ended("a", before, 1), newHold("b", c, 0, 9))
	if !reply.Refused || reply.Answers[0].Total.Err == nil || reply.Answers[1].Held {
		t.Errorf("junk: %+v", reply)
	}
}

// Sums of holds may exceed CountMax. Then a cell counts CountMax, even if one of the holds has ended.
func TestHoldsBeyondCountMax(t *testing.T) {
	real := openAt(t, servers.RedisForTest(t).Addr(), redisorigin.Options{})
	c := inTheFuture("k")
	for _, owner := range []string{"a", "b"} {
		h := newHold(owner, c, store.CountMax, store.CountMax)
		h.As = store.HoldForced
		hold(t, real, h)
	}
	used := func() int64 { return hold(t, real, ended("other", c, 0)).Answers[0].Used }
	if got := used(); got != store.CountMax {
		t.Errorf("two holds count %d, want CountMax", got)
	}
	hold(t, real, ended("a", c, 0))
	if got := used(); got < store.CountMax-1 {
		t.Errorf("the second hold counts %d, want CountMax", got)
	}
	hold(t, real, ended("b", c, 7))
	if got := used(); got < 7 || got > 9 {
		t.Errorf("two holds that have ended count %d, want 7", got)
	}
}

// All keys of a call are in its group.
func TestACallIsAboutOneGroup(t *testing.T) {
	h := named(t, letters(2)...)
	here, other := inTheFuture("0"), inTheFuture("0")
	for i := 1; h.GroupOf(&here.Key) == h.GroupOf(&other.Key); i++ {
		other.Identifier = fmt.Sprint(i)
	}
	id := "0"
	for i := 1; ; i++ {
		if key := store.RecordKey(id); h.GroupOf(&key) != h.GroupOf(&here.Key) {
			break
		}
		id = fmt.Sprint(i)
	}
	before := newHold("a", here, 1, 9)
	before.Before = other
	recorded := holdCall(newHold("a", here, 1, 9))
	recorded.Record = &store.Record{ID: id, Text: "x", TTL: time.Hour}
	for name, call := range map[string]store.HoldCall{
		"a hold":          holdCall(newHold("a", here, 1, 9), newHold("a", other, 1, 9)),
		"the cell before": holdCall(before),
		"the record":      recorded,
	} {
		if _, err := h.Hold(t.Context(), call); !errors.Is(err, window.ErrInvalid) {
			t.Errorf("%s of another group: %v, want ErrInvalid", name, err)
		}
	}
}
