package redisorigin_test

import (
	"context"
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
)

// twins are an origin on a server, and memstore's as its model. Time passes in both by whole seconds, and all times to
// live end half a second later, so both agree on which have ended. A history that takes longer than half a second of
// real time is given up.
type twins struct {
	*rapid.T
	real  *redisorigin.Origin
	model *memstore.Origin
	raws  []*redis.Client
	began time.Time
	ahead time.Duration // of the model's clock, by how much time has passed
	calls int64
}

// slow is less than half a second.
const slow = 400 * time.Millisecond

func newTwins(t *rapid.T, real *redisorigin.Origin, raws ...*redis.Client) *twins {
	w := &twins{T: t, real: real, raws: raws, began: time.Now()}
	w.model = memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return time.Now().Add(w.ahead) },
		Shards: len(raws)})
	w.wipe()
	return w
}

func (w *twins) late() bool { return time.Since(w.began) > slow }

func (w *twins) wipe() {
	w.model.Wipe()
	for _, raw := range w.raws {
		if err := raw.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
	}
	// A server finds out at the first call when it was born.
	birth := store.GrantAsk{Key: store.SlotsKey("w", "n", "other"), Lease: "none"}
	call := store.GrantCall{Asks: []store.GrantAsk{birth}}
	if _, err := w.real.Grants(w.Context(), w.real.ShardOf(&birth.Key), call); err != nil {
		w.Fatal(err)
	}
}

// pass lets time pass.
func (w *twins) pass(d time.Duration) {
	w.ahead += d
	for _, raw := range w.raws {
		pass(w.T, raw, d)
	}
}

func pass(t interface {
	Context() context.Context
	Fatal(...any)
}, raw *redis.Client, d time.Duration) {
	if err := raw.Eval(t.Context(), passScript, nil, d.Milliseconds()).Err(); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
}

// passScript sets back all times that reservations and slots have.
const passScript = `
local d = tonumber(ARGV[1])
local function text(n) return string.format('%.0f', n) end
for _, key in ipairs(redis.call('KEYS', '*')) do
	local kind = redis.call('TYPE', key).ok
	local what = string.match(key, '^weir:{.-}:(%a+)')
	if kind == 'zset' and (what == 'open' or what == 'ended' or what == 'leases') then
		local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
		for i = 1, #all, 2 do redis.call('ZADD', key, text(all[i+1] - d), all[i]) end
	elseif kind == 'hash' and what == 'holds' then
		local all = redis.call('HGETALL', key)
		for i = 1, #all, 2 do
			local counts, at, state = string.match(all[i+1], '^(%d+ %d+) (%d+) (%d)$')
			if counts then redis.call('HSET', key, all[i], counts .. ' ' .. text(at - d) .. ' ' .. state) end
		end
	elseif kind == 'hash' and what == 'record' then
		redis.call('HSET', key, 'e', text(redis.call('HGET', key, 'e') - d))
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
	if what == 'slots' or what == 'leases' or what == 'record' or what == 'calls' then
		redis.call('PEXPIRE', key, redis.call('PTTL', key) - d)
	end
end`

// wantEnds fails if any key other than the epoch's and the birth's would stay for ever.
func (w *twins) wantEnds() {
	for _, raw := range w.raws {
		wantExpiries(w.T, raw)
	}
}

func wantExpiries(t interface {
	Context() context.Context
	Errorf(string, ...any)
}, raw *redis.Client) {
	for _, key := range raw.Keys(t.Context(), "*").Val() {
		if key != "weir:{origin}:epoch" && key != "weir:{origin}:since" && key != "weir:{origin}:changes" &&
			raw.PTTL(t.Context(), key).Val() <= 0 {
			t.Errorf("%s does not expire", key)
		}
	}
}

func (w *twins) ttl() time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 1500, 10_500, 30_500, 90_500}).Draw(w.T, "ttl") * time.Millisecond
}

func (w *twins) often(label string, one int) bool {
	return rapid.IntRange(0, one).Draw(w.T, label) == 0
}

var twinKey = store.SlotsKey("w", "n", "i")

// grant makes a call of one of three nodes, about its slots and about leases.
func (w *twins) grant() {
	n := func(label string, most int64) int64 { return rapid.Int64Range(0, most).Draw(w.T, label) }
	call := store.GrantCall{Node: rapid.Uint64Range(1, 3).Draw(w.T, "node"),
		Number: rapid.Int64Range(max(1, w.calls-3), w.calls+2).Draw(w.T, "number")}
	w.calls = max(w.calls, call.Number)
	for range rapid.IntRange(1, 3).Draw(w.T, "asks") {
		lease := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(w.T, "lease")
		ask := store.GrantAsk{Key: twinKey, Lease: lease, Limit: n("limit", 5), TTL: max(w.ttl(), 500*time.Millisecond)}
		if ask.Have, ask.Want, ask.Spare = n("have", 5), n("want", 5), n("spare", 5); ask.Lease != "" {
			ask.Have, ask.Spare = ask.Have%2, 0
			ask.Want = (1 - ask.Have) * (ask.Want % 2)
		}
		call.Asks = append(call.Asks, ask)
	}
	real, err := w.real.Grants(w.Context(), 0, call)
	model, err2 := w.model.Grants(w.Context(), 0, call)
	if err != nil || err2 != nil {
		w.Fatal(err, err2)
	}
	for i, a := range real.Answers {
		b := model.Answers[i]
		w.sameErr(fmt.Sprintf("%d of %+v", i, call), a.Err, b.Err, a.RetryIn, b.RetryIn)
		if a.Err, a.RetryIn = b.Err, b.RetryIn; a != b && !w.late() {
			w.Fatalf("%d of %+v: %+v, want %+v", i, call, a, b)
		}
	}
}

// sameErr compares errors, and when to come again as far as both clocks were read at the same time.
func (w *twins) sameErr(what string, real, model error, realIn, modelIn time.Duration) {
	if w.late() {
		return
	}
	for _, err := range []error{store.ErrRecovering, store.ErrGrantLate} {
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

// memstore gives the same answers to any history of grants to nodes and leases of a key.
func TestGrantsAgreeWithTheirModel(t *testing.T) {
	server := servers.RedisForTest(t)
	real, raw := openAt(t, server.Addr(), redisorigin.Options{}), rawClient(t, server.Addr())
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, real, raw)
		w.history(true, w.grant)
	})
}

// A bucket whose epoch differs from its birth's epoch is recovering.
func TestABucketIsBornWithItsEpoch(t *testing.T) {
	server := servers.RedisForTest(t)
	real, raw := openAt(t, server.Addr(), redisorigin.Options{}), rawClient(t, server.Addr())
	grow(t, []*redis.Client{raw})
	ask := store.GrantAsk{Key: twinKey, Lease: "a", Limit: 1, Want: 1, TTL: time.Minute}
	for _, recovering := range []bool{false, true} {
		reply, err := real.Grants(t.Context(), 0, store.GrantCall{Asks: []store.GrantAsk{ask}})
		if err != nil || (reply.Answers[0].Held == 1) == recovering ||
			errors.Is(reply.Answers[0].Err, store.ErrRecovering) != recovering {
			t.Errorf("recovering %t: %+v: %v", recovering, reply, err)
		}
		command(t, raw, "FLUSHALL")
		grow(t, []*redis.Client{raw})
		command(t, raw, "SET", "weir:{origin}:epoch", "7")
	}
}
