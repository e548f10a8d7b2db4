package redisorigin_test

import (
	"context"
	"errors"
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

// patience is how long callers wait in these tests. No answer comes.
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

// A dead server is reported at once, and nothing can have been applied.
func TestDeadServer(t *testing.T) {
	server := servers.RedisForTest(t)
	proxy := servers.ProxyForTest(t, server.Addr())
	proxy.Cut()
	o, c := openAt(t, proxy.Addr(), redisorigin.Options{}), cellNow("x", time.Minute)
	for range 50 { // past the pool's own memory of dial errors
		hurried(t, func(ctx context.Context) {
			if err := addOne(ctx, o, c, 1); !errors.Is(err, store.ErrNotApplied) {
				t.Fatalf("add: %v", err)
			}
			if _, err := o.Read(ctx, []window.Cell{c}); err == nil {
				t.Fatal("read: no error")
			}
			if _, err := o.Apply(ctx, 0, []store.Foreign{{Cell: c, Count: 1}}); err == nil {
				t.Fatal("apply: no error")
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

// A network that takes everything and answers nothing costs no more than the
// caller's deadline; afterwards nothing is stuck.
func TestSilentServer(t *testing.T) {
	server := servers.RedisForTest(t)
	proxy := servers.ProxyForTest(t, server.Addr())
	o, c := openAt(t, proxy.Addr(), redisorigin.Options{}), cellNow("x", time.Minute)
	add(t, o, store.Cost{Cell: c, Add: 1})
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
		reply, err := o.Read(t.Context(), []window.Cell{c})
		return err == nil && reply.Totals[0].Region == 1
	})
}

// The server is killed and comes back without its data: it works again by itself, in another epoch, and takes the
// counts that a node still has.
func TestKilledServerComesBackAndIsRestored(t *testing.T) {
	server := servers.RedisForTest(t)
	o, c := openAt(t, server.Addr(), redisorigin.Options{}), cellNow("x", time.Hour)
	add(t, o, store.Cost{Cell: c, Add: 40})
	before := epochOf(t, o, c)
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
	if after := epochOf(t, o, c); after == before {
		t.Errorf("it has epoch %d still", after)
	}
	if got := add(t, o, store.Cost{Cell: c, Add: 2, Restore: 40, Known: 40}); got[0] != 42 {
		t.Errorf("the first chunk after the loss: %d", got[0])
	}
}

// Calls that the server refuses for want of rights were not applied. TestOriginRefusals covers refusals of writes
// alone.
func TestRefusedConnections(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	c := cellNow("x", time.Minute)
	for name, r := range map[string]struct{ url, password string }{
		"wrong password":   {"redis://default:wrong@" + server.Addr(), "right"},
		"unknown database": {"redis://" + server.Addr() + "/99", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := openOrigin(t, r.url, redisorigin.Options{})
			command(t, raw, "CONFIG", "SET", "requirepass", r.password)
			err := addOne(t.Context(), o, c, 1)
			_, applyErr := o.Apply(t.Context(), 0, []store.Foreign{{Cell: c, Count: 1}})
			command(t, raw, "CONFIG", "SET", "requirepass", "")
			if !errors.Is(err, store.ErrNotApplied) {
				t.Errorf("add: %v", err)
			}
			if applyErr == nil {
				t.Error("apply: no error")
			}
			if n := raw.Exists(t.Context(), o.Key(c)).Val(); n != 0 {
				t.Errorf("it was applied")
			}
		})
	}
}

// Callers wait for a used-up pool no longer than its timeout, and a command that was not sent was not applied.
func TestUsedUpPool(t *testing.T) {
	server := servers.RedisForTest(t)
	proxy := servers.ProxyForTest(t, server.Addr())
	o := openOrigin(t, "redis://"+proxy.Addr()+"?pool_size=1&pool_timeout=50ms", redisorigin.Options{})
	c := cellNow("x", time.Hour)
	add(t, o, store.Cost{Cell: c, Add: 1})
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
	if first != nil || !errors.Is(second, redis.ErrPoolTimeout) || isMaybe(second) {
		t.Errorf("two increments over one connection: %v", errs)
	}
	proxy.SetDelay(0)
	if got := read(t, o, c)[0]; got != 2 {
		t.Errorf("total is %d", got)
	}
}
