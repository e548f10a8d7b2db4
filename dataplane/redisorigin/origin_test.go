package redisorigin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

func TestOriginKeepsTheContract(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	storetest.TestOrigin(t, func(t testing.TB) store.Origin {
		if err := raw.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return openAt(t, server.Addr(), redisorigin.Options{})
	})
}

func cellNow(identifier string, d time.Duration) window.Cell {
	return window.Cell{
		Key:      window.Key{Workspace: "w", Namespace: "n", Identifier: identifier, Duration: d},
		Sequence: window.Sequence(time.Now().UnixMilli(), d.Milliseconds()),
	}
}

// Conformance 28: "Keys expire: none lives past (sequence+2)*duration + grace +
// jitter. None is ever without expiry".
func TestEveryKeyExpires(t *testing.T) {
	const grace = 20 * time.Second
	server := servers.RedisForTest(t)
	raw, o := rawClient(t, server.Addr()), openAt(t, server.Addr(), redisorigin.Options{Grace: grace})

	durations := []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, window.DurationMax}
	var adds []store.Add
	for i := range 200 {
		adds = append(adds, store.Add{Cell: cellNow(fmt.Sprint(i), durations[i%len(durations)]), Cost: 1})
	}
	add(t, o, adds[:120]...)
	if err := o.Raise(t.Context(), adds[80:]); err != nil { // 40 there already, not to be raised
		t.Fatal(err)
	}
	for i := range adds {
		adds[i].Cost = 5
	}
	add(t, o, adds[:20]...)
	if err := o.Raise(t.Context(), adds[20:40]); err != nil {
		t.Fatal(err)
	}

	// Claims, on cells that are there and on others.
	var claims []store.Claim
	for i := range 40 {
		c := cellNow(fmt.Sprint("claim", i), time.Hour)
		adds = append(adds, store.Add{Cell: c})
		claims = append(claims, store.Claim{Cell: c, Cost: 1, AtMost: 1}, store.Claim{Cell: adds[i].Cell, Cost: 1, AtMost: 100},
			store.Claim{Cell: cellNow(fmt.Sprint("refused", i), time.Hour), Cost: 2, AtMost: 1})
	}
	for i, c := range o.Claim(t.Context(), claims) {
		if c.Err != nil || c.Added == (i%3 == 2) {
			t.Fatalf("claim %d: %+v", i, c)
		}
	}

	ends := make(map[int64]int)
	for _, a := range adds {
		key := o.Key(a.Cell)
		expiresMs, err := raw.Do(t.Context(), "PEXPIRETIME", key).Int64()
		if err != nil {
			t.Fatal(err)
		}
		least := a.Cell.ExpiresAtMs() + grace.Milliseconds()
		most := least + min(a.Cell.Duration/10, time.Minute).Milliseconds()
		if expiresMs < least || expiresMs > most {
			t.Errorf("%s expires at %d, want %d to %d", key, expiresMs, least, most)
		}
		if a.Cell.Duration == time.Hour {
			ends[expiresMs]++
		}
	}
	if len(ends) < 70 { // of 80 in a minute
		t.Errorf("keys of 80 cells that end together expire at %d moments only", len(ends))
	}
	if n := raw.DBSize(t.Context()).Val(); n != int64(len(adds)) {
		t.Errorf("%d keys for %d cells", n, len(adds))
	}
}

// Where a user may not set expiries there is no key, instead of one without.
func TestNoExpiryNoCount(t *testing.T) {
	server := servers.RedisForTest(t)
	raw, o := rawClient(t, server.Addr()), openAt(t, server.Addr(), redisorigin.Options{})
	c, other := cellNow("x", time.Minute), cellNow("y", time.Minute)
	add(t, o, store.Add{Cell: c, Cost: 7})
	if err := raw.Do(t.Context(), "ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-pexpireat").Err(); err != nil {
		t.Fatal(err)
	}
	limited := openURL(t, "redis://limited:pw@"+server.Addr(), redisorigin.Options{})
	for _, a := range limited.Add(t.Context(), []store.Add{{Cell: c, Cost: 1}, {Cell: other, Cost: math.MaxInt64 / 2}}) {
		if a.Err == nil || errors.Is(a.Err, store.ErrMaybeApplied) {
			t.Errorf("add without the right to set an expiry: %+v", a)
		}
	}
	for _, a := range limited.Claim(t.Context(), []store.Claim{{Cell: c, Cost: 1, AtMost: 9}, {Cell: other, Cost: 1, AtMost: 9}}) {
		if a.Err == nil || errors.Is(a.Err, store.ErrMaybeApplied) || a.Added {
			t.Errorf("claim without the right to set an expiry: %+v", a)
		}
	}
	if got := read(t, o, c, other); got[0] != 7 || got[1] != 0 {
		t.Errorf("totals are %v, want 7 and 0", got)
	}
	if raw.Exists(t.Context(), o.Key(other)).Val() != 0 {
		t.Error("a key was left behind")
	}
}

// "All cells are read in one round trip"; "It never retries by itself".
func TestEveryCallIsOneRoundTrip(t *testing.T) {
	server := servers.RedisForTest(t)
	trips := &tripCounter{}
	options, err := redisorigin.ClientOptions("redis://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	client.AddHook(trips)
	o, err := redisorigin.New(client, redisorigin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var cells []window.Cell
	var adds []store.Add
	var claims []store.Claim
	for i := range 2 * dataplane.BatchMax {
		cells = append(cells, cellNow(fmt.Sprint(i), time.Hour))
		adds = append(adds, store.Add{Cell: cells[i], Cost: 1})
		claims = append(claims, store.Claim{Cell: cells[i], Cost: 1, AtMost: 2})
	}
	for name, call := range map[string]func(){
		"Read":  func() { read(t, o, cells...) },
		"Add":   func() { add(t, o, adds...) },
		"Claim": func() { o.Claim(t.Context(), claims) },
		"Raise": func() { _ = o.Raise(t.Context(), adds) },
	} {
		*trips = tripCounter{}
		call()
		if trips.trips != 1 || trips.commands != 4 { // of 500 keys at most
			t.Errorf("%s of %d cells took %d round trips and %d commands", name, len(cells), trips.trips, trips.commands)
		}
	}
	if err := o.Close(); err != nil || client.Ping(t.Context()).Err() != nil {
		t.Errorf("an Origin of New closed the caller's client: %v", err)
	}
}

// tripCounter counts what is sent and waited for, but for what a new connection
// says first.
type tripCounter struct{ trips, commands int }

func (c *tripCounter) count(cmds ...redis.Cmder) {
	if name := cmds[0].Name(); name == "mget" || name == "eval" {
		c.trips++
		c.commands += len(cmds)
	}
}

func (c *tripCounter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.count(cmd); return next(ctx, cmd) }
}

func (c *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.count(cmds...); return next(ctx, cmds) }
}

// What is no count is read as 0 and cannot be added to; raising replaces it.
func TestGarbage(t *testing.T) {
	server := servers.RedisForTest(t)
	var log strings.Builder
	raw := rawClient(t, server.Addr())
	o := openAt(t, server.Addr(), redisorigin.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	sound := cellNow("sound", time.Minute)
	add(t, o, store.Add{Cell: sound, Cost: 3})

	for i, garbage := range []string{"", "x", "-5", "+5", "007", "1.5", "1e3", " 1", "1 ", "9223372036854775808", strings.Repeat("9", 40)} {
		c := cellNow(fmt.Sprint(i), time.Minute)
		raw.Set(t.Context(), o.Key(c), garbage, 0)
		if got := read(t, o, c, sound); got[0] != 0 || got[1] != 3 {
			t.Errorf("beside %q the totals are %v", garbage, got)
		}
		healGarbage(t, o, c, garbage)
	}
	list := cellNow("list", time.Minute)
	raw.LPush(t.Context(), o.Key(list), "x")
	if got := read(t, o, list); got[0] != 0 {
		t.Errorf("a list is read as %d", got[0])
	}
	if err := addOne(t.Context(), o, list, 1); err == nil || errors.Is(err, store.ErrMaybeApplied) {
		t.Errorf("adding to a list: %v", err)
	}
	healGarbage(t, o, list, "a list")
	if lines := strings.Count(log.String(), "no count"); lines != 1 {
		t.Errorf("logged %d times:\n%s", lines, log.String())
	}
	if n := gathered(t, o)["weir_origin_garbage_values_total"]; n != 11 { // MGET takes a list for nothing
		t.Errorf("counted %v garbage values", n)
	}
}

func healGarbage(t *testing.T, o *redisorigin.Origin, c window.Cell, what string) {
	t.Helper()
	claimed := o.Claim(t.Context(), []store.Claim{{Cell: c, Cost: 1, AtMost: math.MaxInt64}})[0]
	if claimed.Err == nil || claimed.Added || errors.Is(claimed.Err, store.ErrMaybeApplied) {
		t.Errorf("claiming from %q: %+v", what, claimed)
	}
	if err := o.Raise(t.Context(), []store.Add{{Cell: c, Cost: 4}}); err != nil {
		t.Errorf("raising %q: %v", what, err)
	}
	if got := add(t, o, store.Add{Cell: c, Cost: 1}); got[0] != 5 {
		t.Errorf("after raising %q to 4 and adding 1 the total is %d", what, got[0])
	}
}

// Origins of different prefixes share a server and no cell.
func TestPrefixesAreApart(t *testing.T) {
	server := servers.RedisForTest(t)
	c := cellNow("x", time.Minute)
	var origins []*redisorigin.Origin
	for _, o := range []redisorigin.Options{{}, {Prefix: "other"}, {Prefix: "weir:exact"}} {
		origins = append(origins, openAt(t, server.Addr(), o))
	}
	for i, o := range origins {
		add(t, o, store.Add{Cell: c, Cost: int64(i + 1)})
	}
	for i, o := range origins {
		if got := read(t, o, c)[0]; got != int64(i+1) {
			t.Errorf("origin %d reads %d", i, got)
		}
	}
}

func TestCloseEndsTheClientThatOpenMade(t *testing.T) {
	o := openAt(t, servers.RedisForTest(t).Addr(), redisorigin.Options{})
	c := cellNow("x", time.Minute)
	read(t, o, c)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Read(t.Context(), []window.Cell{c}); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if err := addOne(t.Context(), o, c, 1); !errors.Is(err, redis.ErrClosed) || errors.Is(err, store.ErrMaybeApplied) {
		t.Errorf("add after Close: %v", err)
	}
}
