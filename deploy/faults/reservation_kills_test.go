package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/servers"
)

// Reservations survive their maker, but not for long: a client, a node and Redis are killed in turn, during a load. A
// client's reservations end at their time to live, in the way that the client chose. Another node settles the
// reservations of a dead node. A Redis that comes back empty gets the nodes' reservations again, and holds them no
// longer than before.
func TestReservationsUnderKills(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testReservationsUnderKills)
}

func testReservationsUnderKills(t *testing.T) {
	t.Parallel()
	r := newReserving(t)
	load := &streams{reserving: r, key: "load", limit: 1 << 40, ceiling: 1000, stays: 400 * time.Millisecond,
		ttl: 5 * time.Second, failing: true}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range 10 {
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
	const n, ceiling, ttl = 20, 600, 3 * time.Second
	const limit int64 = n * ceiling
	key := fmt.Sprint("client-", returned)
	c := streamsClient{Prefix: key, Request: *tokens(key, ceiling, limit), TTL: ttl, Returned: returned, Streams: n}
	for _, node := range r.nodes {
		c.URLs = append(c.URLs, "http://"+node.Addrs()[0])
	}
	kill, lines := startClient(t, &c)
	told := make([]spentLine, n)
	var sum int64
	for i := range told {
		must(t, lines.Decode(&told[i]))
		sum += told[i].Spent
	}
	for _, line := range told {
		await.True(t, line.ID+" has said what it has spent", func() bool {
			s, err := r.settle(anyOf(r.nodes), line.ID, 0, true)
			return err == nil && !s.Late && s.Spent[0] == line.Spent
		})
	}
	pause(t.Context(), ttl)
	r.isFull(key, 0, limit, always()) // its streams go on
	died := time.Now()
	kill()
	if returned {
		at := r.roomFor(tokens(key, limit-sum, limit))
		r.inTime("a client was killed: what it had not spent is free", died, at, ttl+reservedWithin)
		r.isFull(key, limit-sum, limit, always())
		return
	}
	pause(t.Context(), ttl+reservedWithin+r.machine.since(died))
	r.each(n, func(i int) {
		id, want := told[i].ID, told[i].Spent
		s, _, err := again(id, func() (*weirv1.Settlement, error) { return r.settle(anyOf(r.nodes), id, 0, false) })
		if err != nil || !s.Late || s.Settled || s.Spent[0] != want {
			t.Errorf("%s should have ended with %d: %v, %v", id, want, s, err)
		}
	})
	r.isFull(key, 0, limit, always())
}

// startClient starts a client process, and returns a function that kills it, and its output.
func startClient(t *testing.T, c *streamsClient) (kill func(), lines *json.Decoder) {
	t.Helper()
	cmd, out := startChild(t, clientRole, c)
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // killed
	})
	t.Cleanup(kill)
	return kill, json.NewDecoder(out)
}

// killNode kills a node that has made reservations of a key, and is making reservations of two others.
func (r *reserving) killNode() {
	t := r.t
	t.Helper()
	const n, ceiling, ttl = 20, 100, 3 * time.Second
	const limit int64 = n * ceiling
	victim, other := r.nodes[0], r.nodes[1]
	id := func(i int) string { return fmt.Sprint("node-", i) }
	r.each(n, func(i int) {
		r.wantReserved(victim, id(i), 10*time.Minute, tokens("node", ceiling, limit))
		if i%2 == 0 {
			r.wantSettled(victim, id(i), int64(i), true)
		}
	})
	var flying sync.WaitGroup
	for i := range n / 2 {
		flying.Go(func() { _, _ = r.reserve(victim, fmt.Sprint("left-", i), ttl, tokens("left", 2*ceiling, limit)) })
		flying.Go(func() {
			_, _ = r.reserve(victim, fmt.Sprint("again-", i), 10*time.Minute, tokens("again", 2*ceiling, limit))
		})
	}
	pause(t.Context(), rand.N(20*time.Millisecond))
	died := time.Now()
	must(t, victim.Kill())
	victim.down.Store(true)
	flying.Wait()
	at := r.roomFor(tokens("left", limit, limit))
	r.inTime("a node was killed: what it was making is free", died, at, ttl+reservedWithin)
	r.each(n/2, func(i int) { // a client that was cut off calls another node with the same ID, and has one reservation
		r.wantReserved(other, fmt.Sprint("again-", i), 10*time.Minute, tokens("again", 2*ceiling, limit))
	})
	r.isFull("again", 0, limit, always())
	r.isFull("node", 0, limit, always())
	var sum int64
	for i := range n {
		sum += int64(2 * i)
	}
	r.each(n, func(i int) { r.wantSettled(other, id(i), int64(2*i), false) })
	r.roomFor(tokens("node", limit-sum, limit))
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	must(t, victim.Restart(ctx))
	victim.down.Store(false)
	r.isFull("node", limit-sum, limit, always())
	r.each(n, func(i int) { // late, at a node that does not have the reservation
		s, _, err := again(id(i), func() (*weirv1.Settlement, error) { return r.settle(victim, id(i), 99, false) })
		if err != nil || !s.Late || s.Spent[0] != int64(2*i) {
			t.Errorf("%s was settled with %d: %v, %v", id(i), 2*i, s, err)
		}
	})
	r.isFull("node", limit-sum, limit, always())
}

// killRedis kills Redis, which comes back empty. All reservations of one key are open, and half of another key's are
// settled.
func (r *reserving) killRedis() {
	t := r.t
	t.Helper()
	const n, ceiling, ttl = 20, 100, 8 * time.Second
	const limit int64 = n*ceiling + 50
	open := func(i int) string { return fmt.Sprint("open-", i) }
	done := func(i int) string { return fmt.Sprint("done-", i) }
	var sum, returned int64 // spent in all, of either key; and returned before Redis is killed
	r.each(n, func(i int) {
		r.wantReserved(r.nodes[i%2], done(i), 10*time.Minute, tokens("done", ceiling, limit))
	})
	r.isFull("done", limit-n*ceiling, limit, always())
	r.each(n/2, func(i int) { r.wantSettled(r.nodes[i%2], done(2*i), int64(2*i), false) })
	for i := range n {
		if sum += int64(i); i%2 == 0 {
			returned += ceiling - int64(i)
		}
	}
	ends := time.Now().Add(ttl) // of the first reservation
	r.each(n, func(i int) { r.wantReserved(r.nodes[i%2], open(i), ttl, tokens("open", ceiling, limit)) })
	made := time.Now()
	r.each(n, func(i int) { r.wantSettled(r.nodes[(i/2)%2], open(i), int64(i), true) })
	must(t, r.redis.Kill())
	pause(t.Context(), rand.N(500*time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	must(t, r.redis.Restart(ctx))
	back := time.Now()

	r.each(n, func(i int) { // the node that made it may restore it before the node that has its spending
		s, _, err := again(open(i), func() (*weirv1.Settlement, error) {
			s, err := r.settle(r.nodes[rand.N(2)], open(i), 0, true)
			if err == nil && s.Spent[0] < int64(i) {
				err = fmt.Errorf("it has spent less than %d: %v", i, s)
			}
			return s, err
		})
		if err != nil || s.Spent[0] != int64(i) || s.Late && time.Now().Before(ends) {
			t.Errorf("%s is not what it was: %v, %v", open(i), s, err)
		}
	})
	known := time.Now() // without a bound, because the nodes also restore the load's reservations, one after another
	t.Logf("MEASURED | Redis came back empty: open reservations are known again | %v",
		known.Sub(back).Round(time.Millisecond))
	r.isFull("open", limit-n*ceiling, limit, ends)
	at := r.roomFor(tokens("open", limit-sum, limit))
	r.inTime("Redis came back empty: what was not spent is free", made, at, max(ttl, known.Sub(made))+reservedWithin)
	r.isFull("open", limit-sum, limit, always())

	for i := 0; i < n; i += 2 { // the node that made it may restore it first, as open
		await.True(t, done(i)+" is settled again", func() bool {
			s, err := r.settle(anyOf(r.nodes), done(i), 0, true)
			return err == nil && s.Late && s.Settled
		})
	}
	r.each(n, func(i int) {
		s, tries, err := again(done(i), func() (*weirv1.Settlement, error) {
			return r.settle(r.nodes[rand.N(2)], done(i), int64(i), false)
		})
		if err != nil || s.Spent[0] != int64(i) || !s.Settled || tries == 1 && s.Late != (i%2 == 0) {
			t.Errorf("%s: %v, %v", done(i), s, err)
		}
	})
	r.isFull("done", limit-sum, limit, always())
	r.roomFor(tokens("done", limit-sum-returned, limit)) // cost that was returned before counts
}
