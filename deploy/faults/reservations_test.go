package faults

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/servers"
)

// reservedWithin bounds how long a reservation may stay taken after its time to live.
const reservedWithin = time.Second

// reserving is a region of two nodes, as its clients see it. If Redis does not answer they reserve nothing, because
// reservations that a node grants alone in an outage can exceed the common limit.
type reserving struct {
	t       *testing.T
	redis   *servers.Redis
	nodes   []*program
	machine *lateness
	calls   chan struct{} // bounds concurrent calls, so that a busy machine does not make an outage of too many
}

func newReserving(t *testing.T) *reserving {
	r := &reserving{t: t, redis: servers.RedisForTest(t), calls: make(chan struct{}, 8)}
	dsn := servers.SharedSQL(t).DatabaseForTest(t)
	db := migrated(t, dsn)
	for _, statement := range []string{
		"INSERT INTO ratelimit_namespaces (workspace_id, namespace, outage, updated_at) VALUES ('acme', 'tokens', 'closed', 1)",
		controlplanedb.SettingsChanged,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	r.nodes = startPrograms(t, r.redis, dsn, "eu-1", "eu-2")
	r.machine = watchMachine(t, r.redis, r.nodes)
	return r
}

// call makes a call, when it is its turn.
func (r *reserving) call(call func(ctx context.Context) error) error {
	r.calls <- struct{}{}
	defer func() { <-r.calls }()
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	return call(ctx)
}

// each calls do n times concurrently, and ends the test if it has failed.
func (r *reserving) each(n int, do func(i int)) {
	r.t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// tokens returns a request for a key, in a window that does not end during a test.
func tokens(key string, cost, limit int64) *dataplane.Request {
	return &dataplane.Request{Workspace: "acme", Namespace: "tokens", Identifier: key, Limit: limit, Cost: cost,
		Duration: 1000 * time.Hour}
}

const callWithin = 5 * time.Second

// reserve requests a reservation. It returns false if the reservation was denied, possibly because Redis has not
// answered.
func (r *reserving) reserve(n *program, id string, ttl time.Duration, of *dataplane.Request) (ok bool, err error) {
	err = r.call(func(ctx context.Context) error {
		answer, err := n.Reserve(ctx, connect.NewRequest(&weirv1.ReserveRequest{Id: id, TtlMs: ttl.Milliseconds(),
			Returned: true, Requests: []*weirv1.LimitRequest{limitOf(of)}, Holder: "test"}))
		switch {
		case err != nil:
			return err
		case answer.Msg.Responses != nil && answer.Msg.Responses[0].Source != weirv1.Source_SOURCE_ORIGIN:
			if answer.Msg.Allowed {
				r.t.Errorf("%s was reserved in an outage: %v", id, answer.Msg)
			}
			return errNoOrigin
		}
		ok = answer.Msg.Allowed
		return nil
	})
	return ok, err
}

var errNoOrigin = errors.New("the node has no answer of Redis")

func (r *reserving) settle(n *program, id string, spent int64, more bool) (s *weirv1.Settlement, err error) {
	err = r.call(func(ctx context.Context) error {
		answer, err := n.Settle(ctx, connect.NewRequest(&weirv1.SettleRequest{Id: id, Costs: []int64{spent}, More: more}))
		if err == nil {
			s = answer.Msg.Settlement
		}
		return err
	})
	return s, err
}

// again repeats a call that fails, since the machine is busy or a server is killed, for some time.
func again[T any](what string, call func() (T, error)) (v T, tries int, err error) {
	for began := time.Now(); ; {
		tries++
		if v, err = call(); err == nil || time.Since(began) > time.Minute {
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
			}
			return v, tries, err
		}
		pause(context.Background(), 20*time.Millisecond)
	}
}

// wantReserved reserves.
func (r *reserving) wantReserved(n *program, id string, ttl time.Duration, of *dataplane.Request) {
	ok, _, err := again("reserve "+id, func() (bool, error) { return r.reserve(n, id, ttl, of) })
	if !ok || err != nil {
		r.t.Errorf("reserve %s: %v, %v", id, ok, err)
	}
}

// wantSettled settles a reservation, or reports the cost that is spent so far.
func (r *reserving) wantSettled(n *program, id string, spent int64, more bool) {
	s, tries, err := again("settle "+id, func() (*weirv1.Settlement, error) { return r.settle(n, id, spent, more) })
	if err != nil || s.Late && tries == 1 || s.Settled == more || !slices.Equal(s.Spent, []int64{spent}) {
		r.t.Errorf("settle %s with %d: %v, %v", id, spent, s, err)
	}
}

// roomFor waits until a cost can be reserved, at any node, and returns when that was. The reservation is cancelled.
func (r *reserving) roomFor(of *dataplane.Request) time.Time {
	r.t.Helper()
	id := cryptorand.Text()
	await.True(r.t, fmt.Sprintf("room for %d of %d", of.Cost, of.Limit), func() bool {
		ok, err := r.reserve(anyOf(r.nodes), id, time.Minute, of)
		return ok && err == nil
	})
	at := time.Now()
	r.wantSettled(anyOf(r.nodes), id, 0, false)
	return at
}

// isFull fails the test if more than some room can be reserved at any node, before a moment.
func (r *reserving) isFull(key string, room, limit int64, before time.Time) {
	r.t.Helper()
	for _, n := range r.nodes {
		if n.down.Load() {
			continue
		}
		ok, _, err := again("reserve", func() (bool, error) {
			return r.reserve(n, cryptorand.Text(), time.Second, tokens(key, room+1, limit))
		})
		if time.Now().Before(before) && (ok || err != nil) {
			r.t.Errorf("%s: %d of %d can be reserved (%v), which is 1 too many", key, room+1, limit, err)
		}
	}
}

// always returns a moment after every test.
func always() time.Time { return time.Now().Add(time.Hour) }

// inTime judges how long it took.
func (r *reserving) inTime(what string, since, at time.Time, bound time.Duration) {
	r.t.Helper()
	took, late := at.Sub(since), r.machine.since(since)
	r.t.Logf("MEASURED | %s | %v | at most %v, and %v for the machine", what, took.Round(time.Millisecond), bound,
		late.Round(time.Millisecond))
	if took > bound+late {
		r.t.Errorf("%s took %v", what, took)
	}
}

// streams are a load: each reserves a ceiling at any node, spends a part, and settles at any node. It ends with ctx, or
// when less than a ceiling is left of the limit.
type streams struct {
	*reserving
	key                          string
	limit, ceiling               int64
	stays                        time.Duration
	ttl                          time.Duration
	failing                      bool // calls may fail
	spent, held                  atomic.Int64
	most, refusals               atomic.Int64
	begun, unsettled, unanswered atomic.Int64
}

func (s *streams) run(ctx context.Context, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d-%d", s.key, i, n)
		ok, err := s.reserve(anyOf(s.nodes), id, s.ttl, tokens(s.key, s.ceiling, s.limit))
		switch {
		case err != nil: // some may be reserved, and end by itself
			s.unanswered.Add(1)
			pause(ctx, 100*time.Millisecond)
			continue
		case !ok:
			s.refusals.Add(1)
			if s.held.Load() == 0 && s.spent.Load() > s.limit-s.ceiling || s.unanswered.Load() > 0 && !s.failing {
				return
			}
			pause(ctx, s.stays/4+rand.N(s.stays))
			continue
		}
		s.begun.Add(1)
		s.counts(s.held.Add(s.ceiling) + s.spent.Load())
		s.goOn(ctx, id)
	}
}

// goOn runs the rest of a stream after its ceiling is reserved.
func (s *streams) goOn(ctx context.Context, id string) {
	cost := rand.Int64N(s.ceiling + 1)
	pause(ctx, rand.N(s.stays))
	for _, more := range []bool{true, false} {
		if !more {
			pause(ctx, rand.N(s.stays))
			s.spent.Add(cost) // the cost that is held and spent is never less than this and the others' cost
			s.held.Add(-s.ceiling)
		}
		said := cost
		if more {
			said = cost / 2
		}
		if s.failing {
			if _, err := s.settle(anyOf(s.nodes), id, said, more); err != nil {
				s.unsettled.Add(1)
			}
			continue
		}
		s.wantSettled(anyOf(s.nodes), id, said, more)
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
	servers.TurnSQL(t, testStreamsOverTheNetworkUseTheirLimit)
}

func testStreamsOverTheNetworkUseTheirLimit(t *testing.T) {
	t.Parallel()
	r := newReserving(t)
	s := &streams{reserving: r, key: "shared", limit: 1_000_000, ceiling: 10_000, stays: time.Second,
		ttl: time.Minute}
	var running sync.WaitGroup
	for i := range 200 {
		running.Go(func() { s.run(t.Context(), i) })
	}
	running.Wait()
	spent := s.spent.Load()
	t.Logf("MEASURED | %d streams, %d refusals, at most %d of %d held and spent, %d spent in the end, %d without an answer",
		s.begun.Load(), s.refusals.Load(), s.most.Load(), s.limit, spent, s.unanswered.Load())
	if s.most.Load() > s.limit || spent > s.limit {
		t.Errorf("%d of %d were held and spent at most, and %d spent in the end", s.most.Load(), s.limit, spent)
	}
	if s.refusals.Load() < 100 {
		t.Errorf("the streams did not compete: %d refusals", s.refusals.Load())
	}
	if s.unanswered.Load() > 0 { // reservations without a response are free at their end
		r.roomFor(tokens(s.key, s.limit-spent, s.limit))
	} else if spent < s.limit*95/100 {
		t.Errorf("%d of %d were spent", spent, s.limit)
	}
	r.roomFor(tokens(s.key, s.limit-spent, s.limit))
	r.isFull(s.key, s.limit-spent, s.limit, always())
}

// 1,000 repeated, late and reordered calls about settled reservations, at both nodes, change nothing in Redis.
func TestRepeatedSettlesChangeNothingInRedis(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRepeatedSettlesChangeNothingInRedis)
}

func testRepeatedSettlesChangeNothingInRedis(t *testing.T) {
	t.Parallel()
	r := newReserving(t)
	const reservations, ceiling, limit = 20, 100, 10_000
	id := func(i int) string { return fmt.Sprint("r-", i) }
	r.each(reservations, func(i int) {
		r.wantReserved(r.nodes[i%2], id(i), 10*time.Minute, tokens("k", ceiling, limit))
		r.wantSettled(r.nodes[(i+1)%2], id(i), int64(i), true)
		r.wantSettled(r.nodes[i%2], id(i), int64(2*i), false)
	})
	before := r.snapshot()
	r.each(10, func(int) {
		for range 100 {
			i := rand.N(reservations)
			s, _, err := again("again about "+id(i), func() (*weirv1.Settlement, error) {
				return r.callAgain(r.nodes[rand.N(2)], id(i), tokens("k", ceiling, limit))
			})
			if err != nil || s != nil && (!s.Late || !s.Settled || !slices.Equal(s.Spent, []int64{int64(2 * i)})) {
				t.Errorf("again about %s: %v, %v", id(i), s, err)
			}
		}
	})
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
	r.isFull("k", limit-spent, limit, always())
}

// callAgain makes any call about a reservation that is settled.
func (r *reserving) callAgain(n *program, id string, of *dataplane.Request) (s *weirv1.Settlement, err error) {
	switch rand.N(5) {
	case 0:
		return r.settle(n, id, rand.Int64N(1000), false)
	case 1:
		return r.settle(n, id, rand.Int64N(1000), true)
	case 2:
		err = r.call(func(ctx context.Context) error {
			answer, err := n.Cancel(ctx, connect.NewRequest(&weirv1.CancelRequest{Id: id}))
			if err == nil {
				s = answer.Msg.Settlement
			}
			return err
		})
	case 3:
		err = r.call(func(ctx context.Context) error {
			answer, err := n.Extend(ctx, connect.NewRequest(&weirv1.ExtendRequest{Id: id, TtlMs: 3_600_000}))
			if err == nil {
				s = answer.Msg.Settlement
			}
			return err
		})
	default:
		var ok bool
		if ok, err = r.reserve(n, id, time.Minute, of); err == nil && !ok {
			r.t.Errorf("%s was refused again", id)
		}
	}
	return s, err
}

// snapshot returns the reservations in Redis without their expiry: their records, their holds with their ends, and
// counts. Idle nodes change the expiry.
func (r *reserving) snapshot() map[string]string {
	r.t.Helper()
	ctx := r.t.Context()
	raw := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	defer func() { must(r.t, raw.Close()) }()
	found := make(map[string]string)
	for keys := raw.Scan(ctx, 0, "*", 1000).Iterator(); keys.Next(ctx); {
		key := keys.Val()
		of := func(what string) bool { return strings.Contains(key, what) }
		if !slices.ContainsFunc([]string{":record:", ":holds:", ":open:", ":ended:", ":exact:"}, of) {
			continue
		}
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
