package redisorigin_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// patience is what callers give in these tests, who wait in vain.
const patience = 200 * time.Millisecond

// hurried runs f under a deadline and fails the test if the client's own timeout ends it.
func hurried(t *testing.T, f func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	f(ctx)
	if took := time.Since(began); took >= clientTimeout {
		t.Errorf("took %v with a deadline after %v", took, patience)
	}
}

// A dead server is told at once, and nothing can have been applied.
func TestDeadServer(t *testing.T) {
	server := servers.RedisForTest(t)
	proxy := servers.ProxyForTest(t, server.Addr())
	proxy.Cut()
	o, c := openAt(t, proxy.Addr(), redisorigin.Options{}), cellNow("x", time.Minute)
	for range 50 { // past the pool's own memory of dial errors
		hurried(t, func(ctx context.Context) {
			if err := addOne(ctx, o, c, 1); err == nil || errors.Is(err, store.ErrMaybeApplied) {
				t.Fatalf("add: %v", err)
			}
			if _, err := o.Read(ctx, []window.Cell{c}); err == nil {
				t.Fatal("read: no error")
			}
			if err := o.Raise(ctx, []store.Add{{Cell: c, Cost: 1}}); err == nil {
				t.Fatal("raise: no error")
			}
		})
	}
	if err := proxy.Heal(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "an increment passes after the server is back", func() bool { return addOne(t.Context(), o, c, 1) == nil })
	if got := read(t, o, c)[0]; got != 1 {
		t.Errorf("total after failures that said that nothing was applied: %d", got)
	}
}

// ErrMaybeApplied marks an Add whose fate is unknown: the request left, the reply
// did not arrive. Here it was applied, once: "It never retries by itself."
func TestLostReply(t *testing.T) {
	for name, cuts := range map[string]bool{"and no more to come": false, "and the connection with it": true} {
		t.Run(name, func(t *testing.T) {
			server := servers.RedisForTest(t)
			proxy := servers.ProxyForTest(t, server.Addr())
			o := openAt(t, proxy.Addr(), redisorigin.Options{})
			lossy := &lossy{t, proxy, openAt(t, server.Addr(), redisorigin.Options{}), cuts}
			var adds []store.Add
			var claims []store.Claim
			var added, claimed []window.Cell
			for i := range 700 { // two commands
				added, claimed = append(added, cellNow(fmt.Sprint(i), time.Hour)), append(claimed, cellNow(fmt.Sprint("claim", i), time.Hour))
				adds = append(adds, store.Add{Cell: added[i], Cost: 2})
				claims = append(claims, store.Claim{Cell: claimed[i], Cost: 2, AtMost: 1000})
			}
			add(t, o, adds...)
			o.Claim(t.Context(), claims)

			lossy.lose(added, 2, func(ctx context.Context) (errs []error) {
				for i, a := range o.Add(ctx, adds) {
					if errs = append(errs, a.Err); a.Total != 0 {
						t.Errorf("increment %d: %+v", i, a)
					}
				}
				return errs
			})
			await.True(t, "claims pass again", func() bool { return o.Claim(t.Context(), claims[:1])[0].Err == nil })
			lossy.lose(claimed[1:], 2, func(ctx context.Context) (errs []error) {
				for i, c := range o.Claim(ctx, claims[1:]) {
					if errs = append(errs, c.Err); c.Total != 0 || c.Added {
						t.Errorf("claim %d: %+v", i, c)
					}
				}
				return errs
			})
			await.True(t, "increments pass again", func() bool { return addOne(t.Context(), o, adds[0].Cell, 1) == nil })
		})
	}
}

// lossy is a way to a server on which replies are lost, and with cuts the connections too, after the server has acted.
type lossy struct {
	t      *testing.T
	way    *servers.Proxy
	direct *redisorigin.Origin // past it
	cuts   bool
}

// lose makes a call that adds cost to each cell, with ever longer deadlines until one leaves the time to send it. What
// was applied may be applied once and has to be an ErrMaybeApplied.
func (l *lossy) lose(cells []window.Cell, cost int64, call func(context.Context) []error) {
	l.t.Helper()
	for deadline, all := patience, false; !all; deadline *= 2 {
		before := read(l.t, l.direct, cells...)
		errs := l.callOnce(deadline, call, func() bool { return read(l.t, l.direct, cells[len(cells)-1])[0] > before[len(cells)-1] })
		read(l.t, l.direct, cells...) // by the next answer the server has taken in what came before
		all = true
		for i, total := range read(l.t, l.direct, cells...) {
			switch applied := total - before[i]; {
			case errs[i] == nil || applied > cost || applied > 0 && !isMaybe(errs[i]):
				l.t.Fatalf("call %d added %d of %d and says %v", i, applied, cost, errs[i])
			case applied == 0:
				all = false
			}
		}
	}
}

func (l *lossy) callOnce(deadline time.Duration, call func(context.Context) []error, acted func() bool) []error {
	l.t.Helper()
	l.way.DropReplies(true)
	errs := make(chan []error, 1)
	if l.cuts {
		deadline = clientTimeout
	}
	go func() {
		ctx, cancel := context.WithTimeout(l.t.Context(), deadline)
		defer cancel()
		errs <- call(ctx)
	}()
	if l.cuts {
		await.True(l.t, "the server has acted, or the call has ended without it", func() bool { return len(errs) > 0 || acted() })
		l.way.Cut()
	}
	defer func() {
		if err := l.way.Heal(); err != nil {
			l.t.Fatal(err)
		}
	}()
	return <-errs
}

// A network that takes everything and answers nothing costs no more than the
// caller's deadline; afterwards nothing is stuck.
func TestSilentServer(t *testing.T) {
	server := servers.RedisForTest(t)
	proxy := servers.ProxyForTest(t, server.Addr())
	o, c := openAt(t, proxy.Addr(), redisorigin.Options{}), cellNow("x", time.Minute)
	add(t, o, store.Add{Cell: c, Cost: 1})
	proxy.BlackHole(true)
	for range 3 {
		hurried(t, func(ctx context.Context) {
			if _, err := o.Read(ctx, []window.Cell{c}); err == nil {
				t.Error("read: no error")
			}
		})
		hurried(t, func(ctx context.Context) {
			if err := addOne(ctx, o, c, 1); err == nil {
				t.Error("add: no error")
			}
		})
	}
	proxy.BlackHole(false)
	await.True(t, "reads pass again", func() bool {
		totals, err := o.Read(t.Context(), []window.Cell{c})
		return err == nil && totals[0] == 1
	})
}

// The server is killed and comes back without its data: it works again by itself,
// and Raise restores what a node still knows.
func TestKilledServerComesBackAndIsHealed(t *testing.T) {
	server := servers.RedisForTest(t)
	o, c := openAt(t, server.Addr(), redisorigin.Options{}), cellNow("x", time.Hour)
	add(t, o, store.Add{Cell: c, Cost: 40})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	hurried(t, func(ctx context.Context) {
		if err := addOne(ctx, o, c, 1); err == nil {
			t.Error("add to a dead server: no error")
		}
	})
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "reads pass again", func() bool {
		_, err := o.Read(t.Context(), []window.Cell{c})
		return err == nil
	})
	if got := read(t, o, c)[0]; got != 0 {
		t.Fatalf("the server kept %d", got)
	}
	if got := add(t, o, store.Add{Cell: c, Cost: 2}); got[0] != 2 {
		t.Errorf("the first increment after the loss: %d", got[0])
	}
	for range 2 {
		if err := o.Raise(t.Context(), []store.Add{{Cell: c, Cost: 42}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := add(t, o, store.Add{Cell: c, Cost: 1}); got[0] != 43 {
		t.Errorf("the first increment after healing: %d", got[0])
	}
	ttl := rawClient(t, server.Addr()).PTTL(t.Context(), o.Key(c)).Val()
	if ttl <= 0 || ttl > 2*time.Hour+90*time.Second {
		t.Errorf("the healed key lives for %v", ttl)
	}
}

// What the server refuses was not applied.
func TestRefusals(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	c := cellNow("x", time.Minute)
	set := func(name, value string) {
		t.Helper()
		if err := raw.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]struct {
		url        string
		spoil, fix func()
	}{
		"out of memory": {"redis://" + server.Addr(), func() { set("maxmemory", "1") }, func() { set("maxmemory", "0") }},
		"too few replicas": {"redis://" + server.Addr(),
			func() { set("min-replicas-to-write", "3") }, func() { set("min-replicas-to-write", "0") }},
		"read only": {"redis://" + server.Addr(),
			func() { raw.ReplicaOf(t.Context(), "127.0.0.1", "1") }, func() { raw.ReplicaOf(t.Context(), "NO", "ONE") }},
		"wrong password": {"redis://default:wrong@" + server.Addr(),
			func() { set("requirepass", "right") }, func() { set("requirepass", "") }},
		"unknown database": {"redis://" + server.Addr() + "/99", func() {}, func() {}},
	} {
		t.Run(name, func(t *testing.T) {
			r.spoil()
			o := openURL(t, r.url, redisorigin.Options{})
			err := addOne(t.Context(), o, c, 1)
			raiseErr := o.Raise(t.Context(), []store.Add{{Cell: c, Cost: 1}})
			r.fix()
			if err == nil || errors.Is(err, store.ErrMaybeApplied) {
				t.Errorf("add: %v", err)
			}
			if raiseErr == nil {
				t.Error("raise: no error")
			}
			if n := raw.Exists(t.Context(), openAt(t, server.Addr(), redisorigin.Options{}).Key(c)).Val(); n != 0 {
				t.Errorf("it was applied")
			}
		})
	}
}

// A pool that is used up makes callers wait no longer than it is told to, and what
// never left was not applied.
func TestUsedUpPool(t *testing.T) {
	server := servers.RedisForTest(t)
	proxy := servers.ProxyForTest(t, server.Addr())
	o := openURL(t, "redis://"+proxy.Addr()+"?pool_size=1&pool_timeout=50ms", redisorigin.Options{})
	c := cellNow("x", time.Hour)
	add(t, o, store.Add{Cell: c, Cost: 1})
	proxy.SetDelay(700 * time.Millisecond) // longer than the pool waits, shorter than a read may take

	var errs [2]error
	var callers sync.WaitGroup
	for i := range errs {
		callers.Go(func() { errs[i] = addOne(t.Context(), o, c, 1) })
	}
	callers.Wait()
	first, second := errs[0], errs[1]
	if first != nil {
		first, second = second, first
	}
	if first != nil || !errors.Is(second, redis.ErrPoolTimeout) || errors.Is(second, store.ErrMaybeApplied) {
		t.Errorf("two increments over one connection: %v", errs)
	}
	proxy.SetDelay(0)
	if got := read(t, o, c)[0]; got != 2 {
		t.Errorf("total is %d", got)
	}
}
