package faults

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/servers"
)

// reservedWithin is how long after its time to live what was reserved may stay taken.
const reservedWithin = time.Second

// toldWithin is how long after a Redis has come back empty the nodes that know of a reservation have told of it: two
// seconds as promised, and one in which a node leaves a Redis alone that has failed its calls.
const toldWithin = 3 * time.Second

// reserving is a region of two nodes, as its clients see it.
type reserving struct {
	t       *testing.T
	redis   *servers.Redis
	nodes   []*program
	machine *lateness
}

func newReserving(t *testing.T) *reserving {
	r := &reserving{t: t, redis: servers.RedisForTest(t)}
	r.machine = watchMachine(t, r.redis.Addr())
	r.nodes = startPrograms(t, r.redis, "eu-1", "eu-2")
	return r
}

// tokens is a request for a key, in a window that does not end during a test.
func tokens(key string, cost, limit int64) *dataplane.Request {
	return &dataplane.Request{Workspace: "acme", Namespace: "tokens", Identifier: key, Limit: limit, Cost: cost,
		Duration: 1000 * time.Hour}
}

const callWithin = 5 * time.Second

func (r *reserving) reserve(n *program, id string, ttl time.Duration, of *dataplane.Request) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	answer, err := n.Reserve(ctx, connect.NewRequest(&weirv1.ReserveRequest{Id: id, TtlMs: ttl.Milliseconds(), Returned: true,
		Requests: []*weirv1.LimitRequest{limitOf(of)}, Holder: "test"}))
	return err == nil && answer.Msg.Allowed, err
}

func (r *reserving) settle(n *program, id string, spent int64, more bool) (*weirv1.Settlement, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	answer, err := n.Settle(ctx, connect.NewRequest(&weirv1.SettleRequest{Id: id, Costs: []int64{spent}, More: more}))
	if err != nil {
		return nil, err
	}
	return answer.Msg.Settlement, nil
}

// mustReserve reserves at a node that is there.
func (r *reserving) mustReserve(n *program, id string, ttl time.Duration, of *dataplane.Request) {
	r.t.Helper()
	if ok, err := r.reserve(n, id, ttl, of); !ok || err != nil {
		r.t.Fatalf("reserve %s: %v, %v", id, ok, err)
	}
}

// wantSettled settles, or says what is spent so far.
func (r *reserving) wantSettled(n *program, id string, spent int64, more bool) {
	r.t.Helper()
	s, err := r.settle(n, id, spent, more)
	if err != nil || s.Late || s.Settled == more || !slices.Equal(s.Spent, []int64{spent}) {
		r.t.Errorf("settle %s with %d: %v, %v", id, spent, s, err)
	}
}

// roomFor waits until a cost can be reserved, at any node, and returns when that was. The reservation is cancelled.
func (r *reserving) roomFor(of *dataplane.Request) time.Time {
	r.t.Helper()
	id := cryptorand.Text()
	await.True(r.t, "room", func() bool {
		ok, err := r.reserve(anyOf(r.nodes), id, time.Minute, of)
		return ok && err == nil
	})
	at := time.Now()
	r.wantSettled(anyOf(r.nodes), id, 0, false)
	return at
}

// isFull fails the test if one more than some room can be reserved.
func (r *reserving) isFull(key string, room, limit int64) {
	r.t.Helper()
	for _, n := range r.nodes {
		if ok, err := r.reserve(n, cryptorand.Text(), time.Second, tokens(key, room+1, limit)); ok || err != nil {
			r.t.Errorf("%s: %d of %d can be reserved (%v), which is 1 too many", key, room+1, limit, err)
		}
	}
}

// inTime judges how long it took.
func (r *reserving) inTime(what string, since, at time.Time, bound time.Duration) {
	r.t.Helper()
	took, late := at.Sub(since), 2*r.machine.since(since) // a call wakes two processes one after the other
	r.t.Logf("MEASURED | %s | %v | at most %v, and %v for the machine", what, took.Round(time.Millisecond), bound,
		late.Round(time.Millisecond))
	if took > bound+late {
		r.t.Errorf("%s took %v", what, took)
	}
}

// streams are a load: each reserves a ceiling at any node, spends what it takes, and settles at any node. It ends with
// ctx, or when what is left of the limit is less than a ceiling.
type streams struct {
	*reserving
	key              string
	limit, ceiling   int64
	stays            time.Duration
	failing          bool // calls may fail
	spent, held      atomic.Int64
	most, refusals   atomic.Int64
	begun, unsettled atomic.Int64
}

func (s *streams) run(ctx context.Context, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d-%d", s.key, i, n)
		ok, err := s.reserve(anyOf(s.nodes), id, 10*time.Second, tokens(s.key, s.ceiling, s.limit))
		if err != nil && !s.failing {
			s.t.Error(err)
			return
		}
		if !ok {
			s.refusals.Add(1)
			if s.spent.Load()+s.held.Load() == s.spent.Load() && s.spent.Load() > s.limit-s.ceiling {
				return
			}
			pause(ctx, rand.N(100*time.Millisecond))
			continue
		}
		s.begun.Add(1)
		s.counts(s.held.Add(s.ceiling) + s.spent.Load())
		cost := rand.Int64N(s.ceiling + 1)
		pause(ctx, rand.N(s.stays))
		_, err = s.settle(anyOf(s.nodes), id, cost/2, true)
		pause(ctx, rand.N(s.stays))
		s.spent.Add(cost) // before the room is: what is held and spent is never less than this
		s.held.Add(-s.ceiling)
		if err == nil {
			_, err = s.settle(anyOf(s.nodes), id, cost, false)
		}
		if err != nil {
			s.unsettled.Add(1)
			if !s.failing {
				s.t.Error(err)
			}
		}
	}
}

func (s *streams) counts(now int64) {
	for {
		most := s.most.Load()
		if now <= most || s.most.CompareAndSwap(most, now) {
			return
		}
	}
}

// 200 streams of unknown cost on two nodes, over the network: none past the limit, and nearly all of it used.
func TestStreamsOverTheNetworkUseTheirLimit(t *testing.T) {
	t.Parallel()
	r := newReserving(t)
	s := &streams{reserving: r, key: "shared", limit: 1_000_000, ceiling: 5000, stays: 300 * time.Millisecond}
	var running sync.WaitGroup
	for i := range 200 {
		running.Go(func() { s.run(t.Context(), i) })
	}
	running.Wait()
	spent := s.spent.Load()
	t.Logf("MEASURED | %d streams, %d refusals, at most %d of %d held and spent, %d spent in the end", s.begun.Load(),
		s.refusals.Load(), s.most.Load(), s.limit, spent)
	if s.most.Load() > s.limit || spent > s.limit || spent < s.limit*95/100 {
		t.Errorf("%d of %d were held and spent at most, and %d spent in the end", s.most.Load(), s.limit, spent)
	}
	if s.refusals.Load() < 100 {
		t.Errorf("the streams did not compete: %d refusals", s.refusals.Load())
	}
	r.roomFor(tokens(s.key, s.limit-spent, s.limit))
	r.isFull(s.key, s.limit-spent, s.limit)
}

// 1,000 repeated, late and reordered calls about settled reservations, at both nodes, change nothing in Redis.
func TestRepeatedSettlesChangeNothingInRedis(t *testing.T) {
	t.Parallel()
	r := newReserving(t)
	const reservations, ceiling, limit = 20, 100, 10_000
	id := func(i int) string { return fmt.Sprint("r-", i) }
	for i := range reservations {
		r.mustReserve(r.nodes[i%2], id(i), time.Minute, tokens("k", ceiling, limit))
		r.wantSettled(r.nodes[(i+1)%2], id(i), int64(i), true)
		r.wantSettled(r.nodes[i%2], id(i), int64(2*i), false)
	}
	before := r.snapshot()
	var calls sync.WaitGroup
	for range 10 {
		calls.Go(func() {
			for range 100 {
				i := rand.N(reservations)
				s, err := r.again(r.nodes[rand.N(2)], id(i), tokens("k", ceiling, limit))
				if err != nil || s != nil && (!s.Late || !s.Settled || !slices.Equal(s.Spent, []int64{int64(2 * i)})) {
					t.Errorf("again about %s: %v, %v", id(i), s, err)
				}
			}
		})
	}
	calls.Wait()
	after := r.snapshot()
	for key, was := range before {
		if after[key] != was {
			t.Errorf("%s was\n%s\nand is\n%s", key, was, after[key])
		}
	}
	if len(before) < reservations+3 || len(after) != len(before) {
		t.Errorf("Redis had %d keys of reservations, and has %d:\n%v", len(before), len(after),
			slices.Sorted(maps.Keys(after)))
	}
	const spent = reservations * (reservations - 1)
	r.roomFor(tokens("k", limit-spent, limit))
	r.isFull("k", limit-spent, limit)
}

// again makes any call about a reservation that is settled.
func (r *reserving) again(n *program, id string, of *dataplane.Request) (*weirv1.Settlement, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	switch rand.N(5) {
	case 0:
		return r.settle(n, id, rand.Int64N(1000), false)
	case 1:
		return r.settle(n, id, rand.Int64N(1000), true)
	case 2:
		answer, err := n.Cancel(ctx, connect.NewRequest(&weirv1.CancelRequest{Id: id}))
		if err != nil {
			return nil, err
		}
		return answer.Msg.Settlement, nil
	case 3:
		answer, err := n.Extend(ctx, connect.NewRequest(&weirv1.ExtendRequest{Id: id, TtlMs: 3_600_000}))
		if err != nil {
			return nil, err
		}
		return answer.Msg.Settlement, nil
	}
	ok, err := r.reserve(n, id, time.Minute, of)
	if !ok {
		err = errors.Join(err, errors.New("another reservation by the same id was refused"))
	}
	return nil, err
}

// snapshot is what Redis has of reservations: notes, holds and counts, but not until when.
func (r *reserving) snapshot() map[string]string {
	r.t.Helper()
	ctx := r.t.Context()
	raw := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	defer func() { must(r.t, raw.Close()) }()
	found := make(map[string]string)
	for keys := raw.Scan(ctx, 0, "*", 1000).Iterator(); keys.Next(ctx); {
		key := keys.Val()
		switch kind := raw.Type(ctx, key).Val(); kind {
		case "hash":
			found[key] = fmt.Sprint(raw.HGetAll(ctx, key).Val())
		case "zset":
			found[key] = fmt.Sprint(raw.ZRangeWithScores(ctx, key, 0, -1).Val())
		case "string":
			found[key] = raw.Get(ctx, key).Val()
		default:
			found[key] = kind
		}
	}
	return found
}

// What is reserved outlives whatever is killed, and not for long: a client, a node and Redis are killed in turn, under
// load. A client's reservations end at their time to live, as their client chose; another node settles what a dead one
// made; and a Redis that comes back empty is told again of what nodes know, and holds it no longer than it would have.
func TestReservationsUnderKills(t *testing.T) {
	t.Parallel()
	r := newReserving(t)
	load := &streams{reserving: r, key: "load", limit: 1 << 40, ceiling: 1000, stays: 200 * time.Millisecond, failing: true}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range 20 {
		running.Go(func() { load.run(ctx, i) })
	}
	defer func() {
		stop()
		running.Wait()
		t.Logf("MEASURED | beside %d streams, of which %d were not settled", load.begun.Load(), load.unsettled.Load())
	}()
	r.killClient(true)
	r.killClient(false)
	r.killNode()
	r.killRedis()
}

// killClient kills a client whose streams hold all of a key.
func (r *reserving) killClient(returned bool) {
	t := r.t
	t.Helper()
	const n, ceiling, ttl = 20, 600, 2 * time.Second
	const limit int64 = n * ceiling
	key := fmt.Sprint("client-", returned)
	c := streamsClient{Prefix: key, Request: *tokens(key, ceiling, limit), TTL: ttl, Returned: returned, Streams: n}
	for _, node := range r.nodes {
		c.URLs = append(c.URLs, "http://"+node.Addrs()[0])
	}
	kill, lines := startClient(t, &c)
	spent := make(map[string]int64)
	var sum int64
	for range n {
		var line spentLine
		must(t, lines.Decode(&line))
		spent[line.ID] = line.Spent
		sum += line.Spent
	}
	for id, want := range spent {
		await.True(t, id+" has said what it has spent", func() bool {
			s, err := r.settle(anyOf(r.nodes), id, 0, true)
			return err == nil && !s.Late && s.Spent[0] == want
		})
	}
	pause(t.Context(), ttl)
	r.isFull(key, 0, limit) // its streams go on
	died := time.Now()
	kill()
	if returned {
		at := r.roomFor(tokens(key, limit-sum, limit))
		r.inTime("a client was killed: what it had not spent is free", died, at, ttl+reservedWithin)
		r.isFull(key, limit-sum, limit)
		return
	}
	pause(t.Context(), ttl+reservedWithin)
	for id, want := range spent {
		s, err := r.settle(anyOf(r.nodes), id, 0, false)
		if err != nil || !s.Late || s.Settled || s.Spent[0] != want {
			t.Errorf("%s should have ended with %d: %v, %v", id, want, s, err)
		}
	}
	r.isFull(key, 0, limit)
}

// startClient starts a client in a process of its own, and returns what kills it, and what it tells.
func startClient(t *testing.T, c *streamsClient) (kill func(), lines *json.Decoder) {
	t.Helper()
	spec, err := json.Marshal(c)
	must(t, err)
	path, err := os.Executable()
	must(t, err)
	cmd := exec.Command(path)
	cmd.Env, cmd.Stderr = append(os.Environ(), clientEnv+"="+string(spec), raceEnds), os.Stderr
	_, err = cmd.StdinPipe() // ends with this process, and so does the client
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // killed
	})
	t.Cleanup(kill)
	return kill, json.NewDecoder(out)
}

// killNode kills a node that has made reservations, and is making some.
func (r *reserving) killNode() {
	t := r.t
	t.Helper()
	const n, ceiling, ttl = 20, 100, 2 * time.Second
	const limit int64 = 2 * n * ceiling
	victim, other := r.nodes[0], r.nodes[1]
	id := func(i int) string { return fmt.Sprint("node-", i) }
	for i := range n {
		r.mustReserve(victim, id(i), time.Minute, tokens("node", ceiling, limit))
		if i%2 == 0 {
			r.wantSettled(victim, id(i), int64(i), true)
		}
	}
	var flying sync.WaitGroup
	for i := range n {
		flying.Go(func() { _, _ = r.reserve(victim, id(n+i), ttl, tokens("node", ceiling, limit)) })
	}
	pause(t.Context(), rand.N(4*time.Millisecond))
	died := time.Now()
	must(t, victim.Kill())
	victim.down.Store(true)
	flying.Wait()
	var sum int64
	for i := range n {
		r.wantSettled(other, id(i), int64(2*i), false)
		sum += int64(2 * i)
	}
	for i := 0; i < n; i += 2 { // half of those who were cut off ask again
		r.mustReserve(other, id(n+i), ttl, tokens("node", ceiling, limit))
		r.wantSettled(other, id(n+i), 1, false)
		sum++
	}
	at := r.roomFor(tokens("node", limit-sum, limit))
	r.inTime("a node was killed: what it was making is free", died, at, ttl+reservedWithin)
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	must(t, victim.Restart(ctx))
	victim.down.Store(false)
	r.isFull("node", limit-sum, limit)
	for i := range n {
		s, err := r.settle(victim, id(i), 99, false) // late, at a node that knows nothing of it
		if err != nil || !s.Late || s.Spent[0] != int64(2*i) {
			t.Errorf("%s was settled with %d: %v, %v", id(i), 2*i, s, err)
		}
	}
}

// killRedis kills Redis, which comes back empty. Of one key all reservations are open, of another half are settled.
func (r *reserving) killRedis() {
	t := r.t
	t.Helper()
	const n, ceiling, ttl = 20, 100, 6 * time.Second
	const limit int64 = n*ceiling + 50
	open := func(i int) string { return fmt.Sprint("open-", i) }
	done := func(i int) string { return fmt.Sprint("done-", i) }
	var sum, settled, returned int64
	for i := range n {
		r.mustReserve(r.nodes[i%2], done(i), time.Minute, tokens("done", ceiling, limit))
		if i%2 == 0 {
			r.wantSettled(r.nodes[(i/2)%2], done(i), int64(i), false)
			settled, returned = settled+int64(i), returned+ceiling-int64(i)
		}
	}
	for i := range n {
		r.mustReserve(r.nodes[i%2], open(i), ttl, tokens("open", ceiling, limit))
		r.wantSettled(r.nodes[(i/2)%2], open(i), int64(i), true)
		sum += int64(i)
	}
	made := time.Now()
	must(t, r.redis.Kill())
	pause(t.Context(), rand.N(500*time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	must(t, r.redis.Restart(ctx))
	back := time.Now()

	for i := range n {
		await.True(t, open(i)+" is known again", func() bool {
			s, err := r.settle(r.nodes[rand.N(2)], open(i), 0, true)
			if err == nil && s.Late && time.Since(made) < ttl {
				t.Fatalf("%s is late: %v", open(i), s)
			}
			return err == nil && s.Spent[0] == int64(i)
		})
	}
	r.inTime("Redis came back empty: open reservations are known again", back, time.Now(), toldWithin)
	if time.Since(made) < ttl-time.Second {
		r.isFull("open", limit-n*ceiling, limit)
	}
	at := r.roomFor(tokens("open", limit-sum, limit))
	r.inTime("Redis came back empty: what was not spent is free", made, at, ttl+reservedWithin)
	r.isFull("open", limit-sum, limit)

	for i := range n {
		s, err := r.settle(r.nodes[rand.N(2)], done(i), int64(i), false)
		if err != nil || s.Spent[0] != int64(i) || !s.Settled || s.Late != (i%2 == 0) {
			t.Errorf("%s: %v, %v", done(i), s, err)
		}
		if i%2 != 0 {
			settled += int64(i)
		}
	}
	r.isFull("done", limit-settled, limit)
	r.roomFor(tokens("done", limit-settled-returned, limit)) // what was returned before counts
}
