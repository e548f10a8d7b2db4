package redisorigin_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// sender numbers the chunks of a stream to shard 0.
type sender struct {
	h      store.Origin
	number int64
}

const senderStream = 1 << 40 // that no other call of a test has

func (s *sender) next(costs ...store.Cost) store.Chunk {
	s.number++
	return store.Chunk{Stream: senderStream, Number: s.number, Costs: costs}
}

func (s *sender) send(t testing.TB, costs ...store.Cost) (totals []store.Total) {
	t.Helper()
	for part := range slices.Chunk(costs, store.ChunkMax) {
		reply, err := s.h.Send(t.Context(), s.next(part...))
		if err != nil {
			t.Fatal(err)
		}
		totals = append(totals, reply.Totals...)
	}
	for _, total := range totals {
		if total.Err != nil {
			t.Fatal(total.Err)
		}
	}
	return totals
}

func regionOf(t testing.TB, h store.Origin, c window.Cell) int64 {
	t.Helper()
	reply, err := h.Read(t.Context(), []window.Cell{c})
	if err != nil {
		t.Fatal(err)
	}
	return reply.Totals[0].Region
}

// A replica is promoted that has not received the last chunks, though they were answered: the stream that sent them
// sends them again, once.
func TestOriginSurvivesAFailover(t *testing.T) {
	primary, replica := servers.RedisForTest(t), servers.RedisForTest(t)
	_, port := splitAddr(t, primary.Addr())
	atPrimary, atReplica := rawClient(t, primary.Addr()), rawClient(t, replica.Addr())
	command(t, atReplica, "REPLICAOF", "127.0.0.1", port)
	moving, moveTo := movingOrigin(t, primary.Addr())
	h := keep(moving)
	s, c := &sender{h: h}, cellNow("x", time.Hour)
	key := moving.Key(c)

	s.send(t, store.Cost{Cell: c, Add: 1, Limit: 100})
	await.True(t, "the replica has received it", func() bool { return atReplica.HGet(t.Context(), key, "a").Val() == "1" })
	command(t, atPrimary, "CLIENT", "KILL", "TYPE", "replica")
	command(t, atReplica, "REPLICAOF", "NO", "ONE")
	lost := []store.Chunk{s.next(store.Cost{Cell: c, Add: 10}), s.next(store.Cost{Cell: c, Add: 100})}
	epoch := epochOf(t, h, c)
	for _, chunk := range lost {
		chunk.Costs[0].Epoch = epoch
		if reply, err := h.Send(t.Context(), chunk); err != nil || reply.Totals[0].Err != nil {
			t.Fatal(reply, err)
		}
	}
	if got := regionOf(t, h, c); got != 111 {
		t.Fatalf("the primary has %d", got)
	}

	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	moveTo(replica.Addr())
	promoted := openOrigin(t, "redis://"+replica.Addr(), redisorigin.Options{})
	if got := regionOf(t, promoted, c); got != 1 {
		t.Fatalf("the promoted replica has %d, want 1: nothing was lost", got)
	}
	next := s.next(store.Cost{Cell: c, Epoch: epoch, Add: 1000})
	await.NoError(t, "the next chunk is answered", func() error {
		_, err := h.Send(t.Context(), next)
		return err
	})
	if got := regionOf(t, promoted, c); got != 1111 {
		t.Errorf("after the next chunk the promoted replica has %d, want 1,111", got)
	}
	for _, late := range lost {
		if _, err := promoted.Send(t.Context(), late); err != nil {
			t.Fatal(err)
		}
	}
	if got := regionOf(t, promoted, c); got != 1111 {
		t.Errorf("after late repetitions it has %d", got)
	}
	changes, err := promoted.Changes(t.Context(), 0, 9)
	if err != nil || len(changes.Cells) != 1 || changes.Cells[0].Total != 1111 {
		t.Errorf("changes: %+v, %v", changes, err)
	}
}

func epochOf(t testing.TB, h store.Origin, c window.Cell) store.Epoch {
	t.Helper()
	reply, err := h.Read(t.Context(), []window.Cell{c})
	if err != nil {
		t.Fatal(err)
	}
	return reply.Totals[0].Epoch
}

// movingOrigin returns an Origin at a server that another server can replace.
func movingOrigin(t testing.TB, addr string) (h *redisorigin.Origin, moveTo func(addr string)) {
	t.Helper()
	options, err := redisorigin.ClientOptions(patient("redis://" + addr))
	if err != nil {
		t.Fatal(err)
	}
	var at atomic.Pointer[string]
	at.Store(&addr)
	options.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, *at.Load())
	}
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = client.Close() })
	h, err = redisorigin.New([]redisorigin.Partition{{Client: client}}, redisorigin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h, func(addr string) { at.Store(&addr) }
}

// No cell is ever without an expiry, whichever call creates it, and the server's other data is bounded.
func TestEveryOriginCellExpires(t *testing.T) {
	const grace = 20 * time.Second
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{Grace: grace})
	s := &sender{h: h}
	ctx := t.Context()
	var cells []window.Cell
	for i, d := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, window.DurationMax} {
		sent, claimed := cellNow(fmt.Sprint("s", i), d), cellNow(fmt.Sprint("c", i), d)
		applied, raised := cellNow(fmt.Sprint("t", i), d), cellNow(fmt.Sprint("r", i), d)
		cells = append(cells, sent, claimed, applied, raised)
		for range 2 {
			s.send(t, store.Cost{Cell: sent, Add: 1, Limit: 9})
			s.send(t, store.Cost{Cell: claimed, Add: 1, AtMost: 9, Limit: 9},
				store.Cost{Cell: cellNow("refused", d), Add: 2, AtMost: 1})
			changes, err := h.Changes(ctx, 0, 1)
			_, applyErr := h.Apply(ctx, 0, []store.Foreign{{Cell: applied, Count: int64(i + 1)}})
			err = errors.Join(err, applyErr,
				h.Raise(ctx, 0, changes.Epoch, []store.Change{{Cell: raised, Total: int64(i + 1), Limit: 9}}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range cells {
		expiresMs, err := raw.Do(ctx, "PEXPIRETIME", h.Key(c)).Int64()
		least := c.ExpiresAtMs() + grace.Milliseconds()
		most := least + min(c.Duration/10, time.Minute).Milliseconds()
		if err != nil || expiresMs < least || expiresMs > most {
			t.Errorf("%s expires at %d, want %d to %d: %v", h.Key(c), expiresMs, least, most, err)
		}
	}
	if n := raw.DBSize(ctx).Val(); n != int64(len(cells))+4 {
		t.Errorf("%d keys for %d cells, an epoch, a clock, a stream and the changes: %v", n, len(cells), raw.Keys(ctx, "*").Val())
	}
	if ttl := raw.PTTL(ctx, fmt.Sprintf("weir:{origin}:stream:%x", senderStream)).Val(); ttl <= 0 || ttl > store.StreamKeptMax {
		t.Errorf("the stream is kept for %v", ttl)
	}
}

// A stream is kept for an hour, and while its cells last, a day at most: until then the server recognizes a chunk that
// comes again. No later chunk shortens that time.
func TestAStreamLastsWithItsCells(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	s := &sender{h: openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})}
	for _, step := range []struct{ window, least, most time.Duration }{
		{time.Minute, 59 * time.Minute, time.Hour},
		{6 * time.Hour, 6 * time.Hour, 13 * time.Hour},
		{time.Minute, 6*time.Hour - time.Minute, 13 * time.Hour},
		{30 * 24 * time.Hour, 24*time.Hour - time.Minute, 24 * time.Hour},
	} {
		s.send(t, store.Cost{Cell: cellNow("k", step.window), Add: 1}, store.Cost{Cell: cellNow("l", time.Minute), Add: 1})
		if ttl := raw.PTTL(t.Context(), fmt.Sprintf("weir:{origin}:stream:%x", senderStream)).Val(); ttl < step.least || ttl > step.most {
			t.Errorf("after a window of %v the stream is kept for %v, want %v to %v", step.window, ttl, step.least, step.most)
		}
	}
}

// "The live cells bound the set even if no relay comes": changes of cells that have expired go with the next chunk, and
// with the next look.
func TestChangesEndWithTheirCells(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	s := &sender{h: h}
	c := cellNow("x", time.Hour)
	command(t, raw, "ZADD", "weir:{origin}:changes", time.Now().Add(-time.Second).UnixMilli(),
		"weir:{origin}:exact:{w:n:gone:1000}:1")
	s.send(t, store.Cost{Cell: c, Add: 1, Limit: 9})
	if got := raw.ZRange(t.Context(), "weir:{origin}:changes", 0, -1).Val(); len(got) != 1 || got[0] != h.Key(c) {
		t.Errorf("changes are %v", got)
	}
	for i := range 3 {
		command(t, raw, "ZADD", "weir:{origin}:changes", time.Now().Add(-time.Second).UnixMilli(),
			fmt.Sprintf("weir:{origin}:exact:{w:n:gone%d:1000}:1", i))
	}
	changes, err := h.Changes(t.Context(), 0, 1)
	if err != nil || len(changes.Cells) != 1 || changes.Cells[0].Cell != c || changes.More {
		t.Errorf("changes are %+v, %v; want the live one, and no more", changes, err)
	}
}

// A cell that the server no longer has, of a bucket whose changes name it still, is no change.
func TestOriginChangesOfEvictedCells(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	s, c := &sender{h: h}, cellNow("x", time.Hour)
	s.send(t, store.Cost{Cell: c, Add: 1, Limit: 9})
	command(t, raw, "DEL", h.Key(c))
	changes, err := h.Changes(t.Context(), 0, 9)
	if err != nil || len(changes.Cells) > 0 || changes.More {
		t.Errorf("changes are %+v, %v", changes, err)
	}
	if got := raw.ZCard(t.Context(), "weir:{origin}:changes").Val(); got != 0 {
		t.Errorf("%d changes are left", got)
	}
}

// A server that has lost its epoch and kept the mark of an earlier epoch is not healed.
func TestOriginIsHealedInItsEpochAlone(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	before, err := h.Changes(t.Context(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Healed(t.Context(), 0, before.Epoch); err != nil {
		t.Fatal(err)
	}
	command(t, raw, "DEL", "weir:{origin}:epoch")
	after, err := h.Changes(t.Context(), 0, 1)
	if err != nil || after.Epoch == before.Epoch || after.Healed {
		t.Errorf("before %+v, after %+v, %v", before, after, err)
	}
}

// A value that is no count is reported as such, cell by cell, and left alone.
func TestOriginGarbage(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	sound, list, text := cellNow("sound", time.Hour), cellNow("list", time.Hour), cellNow("text", time.Hour)
	fields := []window.Cell{}
	ctx := t.Context()
	epoch := epochOf(t, h, sound)
	command(t, raw, "LPUSH", h.Key(list), "x")
	command(t, raw, "SET", h.Key(text), "5")
	for i, junk := range []string{"", "x", "-5", "1.5", "nan", "inf", "9007199254740992", "99999999999999999999"} {
		c := cellNow(fmt.Sprint("field", i), time.Hour)
		fields = append(fields, c)
		command(t, raw, "HSET", h.Key(c), string("arkfl"[i%5]), junk)
	}
	bad := append([]window.Cell{list, text}, fields...)
	var costs []store.Cost
	var bounded []store.Cost
	var foreign []store.Foreign
	var changed []store.Change
	for _, c := range append(bad, sound) {
		costs = append(costs, store.Cost{Cell: c, Epoch: epoch, Add: 2, Limit: 9})
		bounded = append(bounded, store.Cost{Cell: c, Add: 1, AtMost: 9, Limit: 9})
		foreign = append(foreign, store.Foreign{Cell: c, Count: 4})
		changed = append(changed, store.Change{Cell: c, Total: 1, Limit: 9})
	}
	check := func(what string, totals []store.Total, want int64) {
		t.Helper()
		for i, total := range totals {
			switch junk := i < len(bad); {
			case junk && (total.Err == nil || total.Epoch == 0 || total.Region != 0):
				t.Errorf("%s: %v is junk and is answered %+v", what, costs[i].Cell, total)
			case !junk && (total.Err != nil || total.Region != want):
				t.Errorf("%s beside junk: %+v", what, total)
			}
		}
	}
	reply, err := h.Send(ctx, store.Chunk{Stream: senderStream, Number: 1, Costs: costs})
	check("send", reply.Totals, 2)
	check("send up to AtMost", claim(ctx, h, bounded...), 3)
	_, applyErr := h.Apply(ctx, 0, foreign)
	err = errors.Join(err, applyErr, h.Ack(ctx, 0, changed), h.Raise(ctx, 0, epoch, changed))
	read, readErr := h.Read(ctx, append(bad, sound))
	check("get", read.Totals, 4)
	command(t, raw, "ZADD", "weir:{origin}:changes", time.Now().Add(time.Hour).UnixMilli(), "no cell")
	command(t, raw, "ZADD", "weir:{origin}:changes", time.Now().Add(time.Hour).UnixMilli(), h.Key(list))
	command(t, raw, "HSET", "weir:{origin}:exact:nonsense", "a", "1", "l", "1")
	changes, changesErr := h.Changes(ctx, 0, 100)
	scanned, _, scanErr := h.Scan(ctx, 0, 0, 1000)
	if err := errors.Join(err, readErr, changesErr, scanErr); err != nil {
		t.Fatal(err)
	}
	if len(changes.Cells) != 1 || changes.Cells[0].Cell != sound || len(scanned) != 1 || scanned[0].Cell != sound {
		t.Errorf("changes are %+v, the scan finds %+v", changes.Cells, scanned)
	}
	if n := raw.LLen(ctx, h.Key(list)).Val(); n != 1 {
		t.Error("the list was touched")
	}
	command(t, raw, "SET", "weir:{origin}:epoch", "x")
	if _, err := h.Read(ctx, []window.Cell{sound}); err == nil || !strings.Contains(err.Error(), "epoch") {
		t.Errorf("with an epoch that is none: %v", err)
	}
}

// A chunk that the server refuses was not applied, and must be sent again.
func TestOriginRefusals(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	c := cellNow("x", time.Hour)
	s := &sender{h: h}
	epoch := s.send(t, store.Cost{Cell: c, Add: 1})[0].Epoch
	for name, r := range map[string][2][]any{
		"out of memory": {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
		"too few replicas": {{"CONFIG", "SET", "min-replicas-to-write", "3"},
			{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"read only": {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := regionOf(t, h, c)
			command(t, raw, r[0]...)
			chunk := s.next(store.Cost{Cell: c, Epoch: epoch, Add: 10})
			_, err := h.Send(t.Context(), chunk)
			claimed := claim(t.Context(), h, store.Cost{Cell: c, Add: 1, AtMost: 1 << 40})[0]
			command(t, raw, r[1]...)
			if err == nil || !errors.Is(claimed.Err, store.ErrNotApplied) {
				t.Errorf("send: %v, up to AtMost: %+v", err, claimed)
			}
			if got := regionOf(t, h, c); got != before {
				t.Errorf("%d became %d", before, got)
			}
			for range 2 {
				if reply, err := h.Send(t.Context(), chunk); err != nil || reply.Totals[0].Region != before+10 {
					t.Errorf("sent again: %+v, %v", reply, err)
				}
			}
		})
	}
}

// "until ctx ends (nil) or the connection is lost".
func TestListenersOfALostServer(t *testing.T) {
	server := servers.RedisForTest(t)
	h := openOrigin(t, "redis://"+server.Addr(), redisorigin.Options{})
	announced := make(chan struct{}, 1000)
	ended := make(chan error, 1)
	go func() {
		ended <- h.Listen(t.Context(), 0, func([]store.Foreign) { announced <- struct{}{} })
	}()
	count := int64(0)
	await.True(t, "it listens", func() bool {
		count++
		_, err := h.Apply(t.Context(), 0, []store.Foreign{{Cell: cellNow("x", time.Hour), Count: count}})
		return err == nil && len(announced) > 0
	})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), server.Addr()) {
		t.Errorf("it ended with %v", err)
	}
	if err := h.Listen(t.Context(), 0, nil); err == nil {
		t.Error("listening to a dead server ended without an error")
	}
}
