package redisorigin_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// twins are an origin on a server, and memstore's as its model. Time passes in both by whole seconds, and all times to
// live end half a second later, so both see the same of what has ended: a history that takes longer than that in truth
// is given up.
type twins struct {
	*rapid.T
	real  *redisorigin.Origin
	model *memstore.Origin
	raw   *redis.Client
	began time.Time
	ahead time.Duration // of the model's clock, by how much time has passed
	calls int64
	cells []window.Cell // of one key, one after the other
}

// slow is less than half a second.
const slow = 400 * time.Millisecond

func newTwins(t *rapid.T, real *redisorigin.Origin, raw *redis.Client) *twins {
	w := &twins{T: t, real: real, raw: raw, began: time.Now()}
	w.model = memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return time.Now().Add(w.ahead) }})
	w.wipe()
	cell := window.Cell{Key: window.Key{Workspace: "w", Namespace: "n", Identifier: "i", Duration: 24 * time.Hour}}
	// Of a cell that has not begun the one before it covers all, at any time.
	for i := range int64(3) {
		cell.Sequence = window.Sequence(w.began.UnixMilli(), cell.DurationMs()) + i + 1
		w.cells = append(w.cells, cell)
	}
	return w
}

func (w *twins) late() bool { return time.Since(w.began) > slow }

func (w *twins) wipe() {
	w.model.Wipe()
	if err := w.raw.FlushAll(w.Context()).Err(); err != nil {
		w.Fatal(err)
	}
	// A server finds out at the first call when it was born.
	birth := store.LeaseWord{Key: store.SlotsKey("w", "n", "other"), ID: "none", Verb: store.LeaseRelease}
	if _, err := w.real.Leases(w.Context(), 0, []store.LeaseWord{birth}); err != nil {
		w.Fatal(err)
	}
}

// pass has time pass.
func (w *twins) pass(d time.Duration) {
	w.ahead += d
	if err := w.raw.Eval(w.Context(), passScript, nil, d.Milliseconds()).Err(); err != nil && !errors.Is(err, redis.Nil) {
		w.Fatal(err)
	}
}

// passScript sets all times that reservations and slots have back.
const passScript = `
local d = tonumber(ARGV[1])
local function text(n) return string.format('%.0f', n) end
for _, key in ipairs(redis.call('KEYS', '*')) do
	local kind = redis.call('TYPE', key).ok
	local what = string.match(key, '^weir:{.-}:(%a+)')
	if kind == 'zset' and (what == 'ends' or what == 'leases') then
		local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
		for i = 1, #all, 2 do redis.call('ZADD', key, text(all[i+1] - d), all[i]) end
	elseif kind == 'hash' and what == 'holds' then
		local all = redis.call('HGETALL', key)
		for i = 1, #all, 2 do
			local head, at = string.match(all[i+1], '^(%d+ [%d,]+ %d+ %d+) (%d+)$')
			if head then redis.call('HSET', key, all[i], head .. ' ' .. text(at - d)) end
		end
	elseif kind == 'hash' and what == 'slots' then
		local all = redis.call('HGETALL', key)
		for i = 1, #all, 2 do
			local slots, at, n, refused = string.match(all[i+1], '^(%d+) (%d+) (%d+) (%d+)$')
			refused = math.max(0, refused - d)
			redis.call('HSET', key, all[i], slots .. ' ' .. text(at - d) .. ' ' .. n .. ' ' .. text(refused))
		end
	elseif what == 'since' then
		local of, since = string.match(redis.call('GET', key), '^(%d+) (%d+)$')
		redis.call('SET', key, of .. ' ' .. text(since - d))
	end
	if what == 'slots' or what == 'leases' or what == 'note' then
		redis.call('PEXPIRE', key, redis.call('PTTL', key) - d)
	end
end`

// wantEnds fails if a key beside the epoch's and the birth's would stay for ever.
func (w *twins) wantEnds() {
	for _, key := range w.raw.Keys(w.Context(), "*").Val() {
		if key != "weir:{origin}:epoch" && key != "weir:{origin}:since" && key != "weir:{origin}:changes" &&
			w.raw.PTTL(w.Context(), key).Val() <= 0 {
			w.Errorf("%s does not expire", key)
		}
	}
}

func (w *twins) ttl() time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 1500, 10_500, 30_500, 90_500}).Draw(w.T, "ttl") * time.Millisecond
}

func (w *twins) often(label string, one int) bool {
	return rapid.IntRange(0, one).Draw(w.T, label) == 0
}

func (w *twins) hold() {
	cost := rapid.Int64Range(0, 60).Draw(w.T, "cost")
	c := rapid.IntRange(1, 2).Draw(w.T, "cell")
	word := store.Hold{ID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.T, "id"), Cell: w.cells[c],
		Before: w.cells[c-1], Step: max(0, rapid.Int64Range(-2, 3).Draw(w.T, "step")),
		Attempt: rapid.Uint64Range(1, 2).Draw(w.T, "attempt"), Cost: cost, TTL: w.ttl(),
		After: rapid.Int64Range(0, cost).Draw(w.T, "after"),
		Limit: rapid.SampledFrom([]int64{0, 50, 100, 200}).Draw(w.T, "limit"),
		Undo:  w.often("undo", 6), Force: w.often("force", 6), Again: w.often("again", 6),
		Look: w.often("look", 6)}
	if w.often("nothing", 4) {
		word.Cost = 0
	}
	if word.After = min(word.After, word.Cost); word.TTL == 0 {
		word.After = word.Cost // as words about what is settled have it
	}
	real, err := w.real.Hold(w.Context(), 0, []store.Hold{word})
	model, err2 := w.model.Hold(w.Context(), 0, []store.Hold{word})
	if err != nil || err2 != nil {
		w.Fatal(err, err2)
	}
	w.same(fmt.Sprintf("%+v", word), real.Answers[0], model.Answers[0])
}

// same compares answers to a hold, but for the epoch.
func (w *twins) same(what string, real, model store.HoldAnswer) {
	for _, err := range []error{store.ErrHolds, store.ErrHoldUsed} {
		if errors.Is(real.Total.Err, err) != errors.Is(model.Total.Err, err) && !w.late() {
			w.Fatalf("%s: %v, want %v", what, real.Total.Err, model.Total.Err)
		}
	}
	if model.Total.Err != nil || real.Total.Err != nil {
		return
	}
	real.Total.Epoch = model.Total.Epoch
	if real != model && !w.late() {
		w.Fatalf("%s: %+v, want %+v", what, real, model)
	}
}

// count adds what no hold is of, or what other regions have accepted.
func (w *twins) count() {
	cell, n := rapid.SampledFrom(w.cells).Draw(w.T, "counted"), rapid.Int64Range(1, 20).Draw(w.T, "count")
	w.calls++
	for _, h := range []store.FullOrigin{w.real, w.model} {
		if n%2 == 0 {
			if _, err := h.Apply(w.Context(), 0, []store.Foreign{{Cell: cell, Count: n}}); err != nil {
				w.Fatal(err)
			}
			continue
		}
		call := store.Chunk{Stream: 7, Number: w.calls, Costs: []store.Cost{{Cell: cell, Add: n, AtMost: store.CountMax}}}
		if reply, err := h.Send(w.Context(), call); err != nil || !reply.Totals[0].Added {
			w.Fatalf("%+v, %v", reply, err)
		}
	}
}

func (w *twins) note() {
	note := store.Note{ID: rapid.SampledFrom([]string{"a", "b"}).Draw(w.T, "id"), TTL: w.ttl() + 500*time.Millisecond,
		Version: rapid.Int64Range(0, 4).Draw(w.T, "version"), Text: rapid.SampledFrom([]string{"x", "y"}).Draw(w.T, "text"),
		Again: w.often("again", 3)}
	if note.TTL > 500*time.Millisecond {
		note.TTL -= 500 * time.Millisecond
	}
	real, stored, err := w.real.Note(w.Context(), note)
	model, stored2, err2 := w.model.Note(w.Context(), note)
	if err != nil || err2 != nil {
		w.Fatal(err, err2)
	}
	if (stored != stored2 || real.Version != model.Version || real.Text != model.Text) && !w.late() {
		w.Fatalf("%+v: %+v %t, want %+v %t", note, real, stored, model, stored2)
	}
}

var twinKey = store.SlotsKey("w", "n", "i")

func (w *twins) slots() {
	n := func(label string) int64 { return rapid.Int64Range(0, 5).Draw(w.T, label) }
	ask := store.SlotsAsk{Key: twinKey, Limit: n("limit"), Have: n("have"), Want: n("want"), Spare: n("spare"),
		TTL: max(w.ttl(), 500*time.Millisecond)}
	call := store.SlotsCall{Node: rapid.Uint64Range(1, 3).Draw(w.T, "node"), Asks: []store.SlotsAsk{ask},
		Number: rapid.Int64Range(max(1, w.calls-3), w.calls+2).Draw(w.T, "number")}
	w.calls = max(w.calls, call.Number)
	real, err := w.real.Slots(w.Context(), 0, call)
	model, err2 := w.model.Slots(w.Context(), 0, call)
	if err != nil || err2 != nil {
		w.Fatal(err, err2)
	}
	a, b := real.Answers[0], model.Answers[0]
	w.sameErr(fmt.Sprintf("%+v", call), a.Err, b.Err, a.RetryIn, b.RetryIn)
	if a.Err, a.RetryIn = b.Err, b.RetryIn; a != b && !w.late() {
		w.Fatalf("%+v: %+v, want %+v", call, a, b)
	}
}

func (w *twins) lease() {
	word := store.LeaseWord{Key: twinKey, ID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.T, "id"),
		Verb: store.LeaseVerb(rapid.IntRange(0, 2).Draw(w.T, "verb")), Limit: rapid.Int64Range(0, 5).Draw(w.T, "limit"),
		TTL: max(w.ttl(), 500*time.Millisecond)}
	real, err := w.real.Leases(w.Context(), 0, []store.LeaseWord{word})
	model, err2 := w.model.Leases(w.Context(), 0, []store.LeaseWord{word})
	if err != nil || err2 != nil {
		w.Fatal(err, err2)
	}
	a, b := real.Answers[0], model.Answers[0]
	w.sameErr(fmt.Sprintf("%+v", word), a.Err, b.Err, a.RetryIn, b.RetryIn)
	if a.Err, a.RetryIn = b.Err, b.RetryIn; a != b && !w.late() {
		w.Fatalf("%+v: %+v, want %+v", word, a, b)
	}
}

// sameErr compares errors, and when to come again as far as both clocks were read at the same time.
func (w *twins) sameErr(what string, real, model error, realIn, modelIn time.Duration) {
	if w.late() {
		return
	}
	for _, err := range []error{store.ErrRecovering, store.ErrSlotsLate} {
		if errors.Is(real, err) != errors.Is(model, err) {
			w.Fatalf("%s: %v, want %v", what, real, model)
		}
	}
	if d := realIn - modelIn; d.Abs() > slow || realIn == 0 != (modelIn == 0) {
		w.Fatalf("%s: to be tried again in %v, want %v", what, realIn, modelIn)
	}
}

// history makes calls as long as both are in step.
func (w *twins) history(wipes bool, calls ...func()) {
	for range rapid.IntRange(1, 40).Draw(w.T, "calls") {
		switch what := rapid.IntRange(0, 2*len(calls)).Draw(w.T, "what"); {
		case w.late():
			return
		case what > 0:
			calls[what%len(calls)]()
		case wipes && w.often("wipe", 3):
			w.wipe()
		default:
			seconds := rapid.SampledFrom([]int{1, 2, 10, 31, 59, 60, 61, 91}).Draw(w.T, "seconds")
			w.pass(time.Duration(seconds) * time.Second)
		}
	}
	w.wantEnds()
}

// Any history of words about holds is answered as memstore answers it.
func TestHoldsAgreeWithTheirModel(t *testing.T) {
	server := servers.RedisForTest(t)
	real, raw := openAt(t, server.Addr(), redisorigin.Options{}), rawClient(t, server.Addr())
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, real, raw)
		w.history(true, w.hold, w.hold, w.hold, w.count)
	})
}

// So is any history of notes.
func TestNotesAgreeWithTheirModel(t *testing.T) {
	server := servers.RedisForTest(t)
	real, raw := openAt(t, server.Addr(), redisorigin.Options{}), rawClient(t, server.Addr())
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, real, raw)
		w.history(true, w.note)
	})
}

// So is any history of slots and leases of one key.
func TestSlotsAgreeWithTheirModel(t *testing.T) {
	server := servers.RedisForTest(t)
	real, raw := openAt(t, server.Addr(), redisorigin.Options{}), rawClient(t, server.Addr())
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, real, raw)
		w.history(true, w.slots, w.lease)
	})
}

// Holds that are forgotten make room for others.
func TestForgottenHoldsMakeRoom(t *testing.T) {
	server := servers.RedisForTest(t)
	real, raw := openAt(t, server.Addr(), redisorigin.Options{}), rawClient(t, server.Addr())
	cell := cellNow("k", 24*time.Hour)
	before := cell
	before.Sequence--
	holds := make([]store.Hold, store.HoldsMax)
	for i := range holds {
		holds[i] = store.Hold{ID: fmt.Sprint(i), Cell: cell, Before: before, Attempt: 1, Cost: 1, Limit: 1 << 20,
			TTL: time.Hour}
	}
	fill := func(what string, wants error) {
		t.Helper()
		for at := 0; at < len(holds); at += 250 {
			reply, err := real.Hold(t.Context(), 0, holds[at:at+250])
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range reply.Answers {
				if !errors.Is(a.Total.Err, wants) {
					t.Fatalf("%s: %v, want %v", what, a.Total.Err, wants)
				}
			}
		}
	}
	fill("the first", nil)
	for i := range holds {
		holds[i].ID = fmt.Sprint("more", i)
	}
	fill("as many more", store.ErrHolds)
	ended := (time.Hour + time.Second).Milliseconds()
	if err := raw.Eval(t.Context(), passScript, nil, ended).Err(); !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	fill("when the first have ended", store.ErrHolds)
	if err := raw.Eval(t.Context(), passScript, nil, store.HoldKeptFor.Milliseconds()).Err(); !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	fill("when the first are forgotten", nil)
}

// What is no cell counts as nothing in the window after it.
func TestJunkBeforeAHoldCountsNothing(t *testing.T) {
	server := servers.RedisForTest(t)
	real, raw := openAt(t, server.Addr(), redisorigin.Options{}), rawClient(t, server.Addr())
	before := cellNow("k", time.Hour)
	add(t, real, store.Cost{Cell: before, Add: 5})
	command(t, raw, "HSET", real.Key(before), "a", "x")
	cell := before
	cell.Sequence++
	word := store.Hold{ID: "a", Cell: cell, Before: before, Attempt: 1, Cost: 5, Limit: 5, TTL: time.Hour}
	reply, err := real.Hold(t.Context(), 0, []store.Hold{word})
	if err != nil || !reply.Answers[0].Granted || reply.Answers[0].UsedBefore != 0 {
		t.Errorf("%+v: %v", reply, err)
	}
}

// A bucket whose epoch is another one than that of its birth is recovering.
func TestABucketIsBornWithItsEpoch(t *testing.T) {
	server := servers.RedisForTest(t)
	real, raw := openAt(t, server.Addr(), redisorigin.Options{}), rawClient(t, server.Addr())
	grow(t, []*redis.Client{raw})
	word := store.LeaseWord{Key: twinKey, ID: "a", Limit: 1, TTL: time.Minute}
	for _, recovering := range []bool{false, true} {
		reply, err := real.Leases(t.Context(), 0, []store.LeaseWord{word})
		if err != nil || reply.Answers[0].Held == recovering || errors.Is(reply.Answers[0].Err, store.ErrRecovering) != recovering {
			t.Errorf("recovering %t: %+v: %v", recovering, reply, err)
		}
		command(t, raw, "FLUSHALL")
		grow(t, []*redis.Client{raw})
		command(t, raw, "SET", "weir:{origin}:epoch", "7")
	}
}
