package leases_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// way is a node's way to an origin. It makes each call as often as tries has it, for within each, and waits for it.
type way struct {
	*memstore.Origin
	tries  int
	within time.Duration
}

func (w way) Say(ctx context.Context, shard int, asks []store.GrantAsk,
	_ func([]store.GrantAnswer)) (answers []store.GrantAnswer, err error) {
	for range w.tries {
		within, cancel := context.WithTimeout(ctx, w.within)
		var reply store.GrantReply
		reply, err = w.Grants(within, shard, store.GrantCall{Asks: asks})
		if cancel(); err == nil {
			return reply.Answers, nil
		}
	}
	return nil, err
}

func (w way) Go(f func()) { f() }

// book returns the book of a node with an origin, or of a node alone.
func book(t testing.TB, origin *memstore.Origin) *leases.Book {
	b := &leases.Book{SteadyMs: func() int64 { return time.Now().UnixMilli() }}
	cfg := slots.Config{Ended: b.Ended}
	if origin != nil {
		client := origin.Client()
		cfg.Origin, b.Origin = client, way{client, 1, time.Hour}
	}
	b.Table = slots.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 100)
	n := 0
	b.Table.Run(ctx, func(f func()) { n++; go func() { f(); done <- struct{}{} }() })
	t.Cleanup(func() {
		cancel()
		for range n {
			<-done
		}
	})
	return b
}

func ask(id string, limit int64) *leases.Ask {
	return &leases.Ask{Ask: slots.Ask{Name: slots.Name{Workspace: "w", Namespace: "n", Identifier: "i"}, Limit: limit,
		ID: id, TTL: time.Second, Unattended: true, SinceMs: time.Now().UnixMilli(), Holder: "h"}}
}

// Any node renews and releases leases that another node has granted. Limits hold, and a lease that is not renewed ends.
func TestLeasesAreAnyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		a, b := book(t, origin), book(t, origin)
		one, two := ask("one", 2), ask("two", 2)
		for _, try := range []struct {
			at   *leases.Book
			ask  *leases.Ask
			want bool
		}{{a, one, true}, {b, two, true}, {a, ask("three", 2), false}, {b, one, true}} {
			if r := try.at.Acquire(t.Context(), try.ask, false); r.Granted != try.want || r.Out || r.Err != nil {
				t.Errorf("%s: %+v", try.ask.ID, r)
			}
		}
		for range 10 {
			time.Sleep(900 * time.Millisecond)
			if errs := b.Renew(t.Context(), []leases.Lease{one.Lease(), two.Lease()}, 0); errs[0] != nil || errs[1] != nil {
				t.Fatal(errs)
			}
		}
		if errs := a.Release(t.Context(), []leases.Lease{two.Lease()}); errs[0] != nil {
			t.Error(errs)
		}
		if r := a.Acquire(t.Context(), ask("three", 2), false); !r.Granted {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Second + slots.Margin)
		if errs := a.Renew(t.Context(), []leases.Lease{one.Lease()}, 0); !errors.Is(errs[0], slots.ErrLost) {
			t.Error(errs)
		}
		if r := b.Acquire(t.Context(), ask("four", 1), false); !r.Granted {
			t.Errorf("%+v", r)
		}
	})
}

// "The slot is granted 500 ms after it at the earliest": after a lease that was renewed, and after a lease that was
// not.
func TestASlotIsGrantedSomeTimeAfterItsLease(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			a, b := book(t, origin), book(t, origin)
			one := ask("one", 1)
			if r := a.Acquire(t.Context(), one, false); !r.Granted {
				t.Fatalf("%+v", r)
			}
			if renewed {
				time.Sleep(500 * time.Millisecond)
				if errs := b.Renew(t.Context(), []leases.Lease{one.Lease()}, 0); errs[0] != nil {
					t.Fatal(errs)
				}
			}
			time.Sleep(time.Second + slots.Margin - time.Millisecond)
			if r := b.Acquire(t.Context(), ask("two", 1), false); r.Granted {
				t.Errorf("renewed %v: granted too early", renewed)
			}
			time.Sleep(50 * time.Millisecond)
			if r := b.Acquire(t.Context(), ask("two", 1), false); !r.Granted {
				t.Errorf("renewed %v: %+v", renewed, r)
			}
		})
	}
}

// With a limit of 0 the answer is a refusal, without a call, unless the lease may be held already.
func TestALimitOfNothingIsNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := book(t, memstore.NewOrigin(memstore.OriginOptions{}))
		b.Origin.(way).Faults.Hook(func(memstore.Op) error {
			t.Error("the origin is asked")
			return nil
		})
		drawn := ask("one", 0)
		drawn.Drawn = true
		if r := b.Acquire(t.Context(), drawn, false); r.Granted || r.Out {
			t.Errorf("%+v", r)
		}
	})
}

// A repeated call gets the same lease: it lasts longer, and its beginning does not change.
func TestARepeatedCallKeepsTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := book(t, memstore.NewOrigin(memstore.OriginOptions{})), time.Now().UnixMilli()
		for range 3 {
			again := ask("one", 1)
			if r := b.Acquire(t.Context(), again, false); !r.Granted || again.SinceMs != began {
				t.Errorf("%+v, since %d, want %d", r, again.SinceMs, began)
			}
			time.Sleep(900 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if over := ask("one", 1); !b.Acquire(t.Context(), over, false).Granted || over.SinceMs == began {
			t.Errorf("a lease that had ended goes on since %d", over.SinceMs)
		}
	})
}

// Requests that wait on a node are granted leases in the order in which they came.
func TestWaitersTakeTurns(t *testing.T) {
	for name, origin := range map[string]*memstore.Origin{"a fleet": memstore.NewOrigin(memstore.OriginOptions{}), "alone": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := book(t, origin)
				first := ask("first", 1)
				first.TTL = 5 * time.Minute
				if r := b.Acquire(t.Context(), first, false); !r.Granted {
					t.Fatalf("%+v", r)
				}
				order := make(chan string, 3)
				for _, id := range []string{"a", "b", "c"} {
					go func() {
						w := ask(id, 1)
						if r := b.Acquire(t.Context(), w, true); !r.Granted {
							t.Errorf("%s: %+v", id, r)
						}
						order <- id
						b.Release(t.Context(), []leases.Lease{w.Lease()})
					}()
					synctest.Wait()
				}
				gone, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if r := b.Acquire(gone, ask("gone", 1), true); r.Granted || r.Out {
					t.Errorf("gone: %+v", r)
				}
				b.Release(t.Context(), []leases.Lease{first.Lease()})
				if got := <-order + <-order + <-order; got != "abc" {
					t.Errorf("in the order %s", got)
				}
			})
		})
	}
}

// Without its origin a node grants its own slots, if the outage policy allows it. These leases stay.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		b := book(t, origin)
		held, _ := b.Table.Try(t.Context(), &slots.Ask{Name: ask("", 0).Name, Limit: 9, TTL: 5 * time.Minute}), 0
		if !held.Granted {
			t.Fatalf("%+v", held)
		}
		there := ask("there", 9)
		if r := b.Acquire(t.Context(), there, false); !r.Granted {
			t.Fatalf("%+v", r)
		}
		b.Origin.(way).Faults.Fail(errors.New("away"))
		refused := ask("refused", 9)
		if r := b.Acquire(t.Context(), refused, false); r.Granted || !r.Out {
			t.Errorf("not local: %+v", r)
		}
		held.Lease.Release()
		here := ask("here", 9)
		here.Local = true
		r := b.Acquire(t.Context(), here, false)
		if !r.Granted || !r.Out {
			t.Errorf("local: %+v", r)
		}
		errs := b.Renew(t.Context(), []leases.Lease{there.Lease(), here.Lease()}, 0)
		if errs[0] == nil || errors.Is(errs[0], slots.ErrLost) || errs[1] != nil {
			t.Error(errs)
		}
		if errs := b.Release(t.Context(), []leases.Lease{there.Lease(), here.Lease()}); errs[0] == nil || errs[1] != nil {
			t.Error(errs)
		}
		ends, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refused.OutEnds = true
		if r := b.Acquire(ends, refused, true); !r.Out || ends.Err() != nil {
			t.Errorf("open: %+v", r)
		}
		b.Origin.(way).Faults.Fail(nil)
		if errs := b.Renew(t.Context(), []leases.Lease{here.Lease()}, 0); !errors.Is(errs[0], slots.ErrLost) {
			t.Error(errs)
		}
	})
}

// A retry at another node gets the lease that was granted for its id, whatever that node has just refused.
func TestARetryAtANodeThatHasJustRefusedTheKeyHasItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		a, b := book(t, origin), book(t, origin)
		if r := a.Acquire(t.Context(), ask("first", 1), false); !r.Granted {
			t.Fatalf("%+v", r)
		}
		if r := b.Acquire(t.Context(), ask("second", 1), false); r.Granted {
			t.Fatalf("two leases of 1: %+v", r)
		}
		if r := b.Acquire(t.Context(), ask("first", 1), false); !r.Granted {
			t.Errorf("the retry is refused: %+v", r)
		}
	})
}

// A flood of refused requests for new leases calls the origin once in 20 ms.
func TestRefusalsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		b := book(t, origin)
		b.Acquire(t.Context(), ask("first", 1), false)
		asked := 0
		for i := range 1000 {
			a := ask(strings.Repeat("x", i%100+1), 1)
			a.Drawn = true
			if r := b.Acquire(t.Context(), a, false); r.Granted || r.Held != 1 {
				t.Fatalf("%+v", r)
			} else if r.Asked {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("%d calls", asked)
		}
		if r := b.Acquire(t.Context(), ask("first", 1), false); !r.Granted {
			t.Errorf("the holder's again: %+v", r)
		}
		b.Release(t.Context(), []leases.Lease{ask("first", 1).Lease()})
		if r := b.Acquire(t.Context(), ask("x", 1), false); !r.Granted {
			t.Errorf("%+v", r)
		}
	})
}

func TestTokensComeBack(t *testing.T) {
	text := func(most int) *rapid.Generator[string] {
		return rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, most), func(b []byte) string { return string(b) })
	}
	rapid.Check(t, func(t *rapid.T) {
		l := leases.Lease{Key: slots.Name{Workspace: text(window.WorkspaceBytesMax).Draw(t, "w"),
			Namespace: text(window.NamespaceBytesMax).Draw(t, "n"), Identifier: text(window.IdentifierBytesMax).Draw(t, "i")},
			ID: text(store.LeaseIDBytesMax).Draw(t, "id"), Holder: text(leases.HolderBytesMax).Draw(t, "h"),
			TTL:     time.Duration(rapid.Int64Range(1, leases.TTLMax.Milliseconds()).Draw(t, "ttl")) * time.Millisecond,
			SinceMs: rapid.Int64Range(0, 1<<52).Draw(t, "since")}
		token := l.Token()
		if got, err := leases.Parse(token); err != nil || got != l || len(token) > leases.TokenBytesMax {
			t.Fatalf("%+v: %+v, %v, %d bytes", l, got, err, len(token))
		}
	})
}

func FuzzParse(f *testing.F) {
	l := ask("id", 1).Lease()
	f.Add(l.Token())
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, token string) {
		l, err := leases.Parse(token)
		if err != nil {
			if !errors.Is(err, window.ErrInvalid) || l != (leases.Lease{}) {
				t.Fatalf("%+v: %v", l, err)
			}
			return
		}
		ask := store.GrantAsk{Key: l.Key.SlotsKey(), Lease: l.ID, Want: 1, TTL: l.TTL}
		if err := store.CheckGrantAsk(&ask); err != nil {
			t.Fatal(err)
		}
		if again, err := leases.Parse(l.Token()); err != nil || again != l {
			t.Fatalf("%+v and %+v: %v", l, again, err)
		}
	})
}

// A lease that is released at this node makes room for the next request at once, although the key was just refused.
func TestAReleaseMakesRoomAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := book(t, memstore.NewOrigin(memstore.OriginOptions{}))
		first, second := ask("first", 1), ask("second", 1)
		second.Drawn = true
		if r := b.Acquire(t.Context(), first, false); !r.Granted {
			t.Fatalf("%+v", r)
		}
		if r := b.Acquire(t.Context(), second, false); r.Granted {
			t.Fatalf("%+v", r)
		}
		if errs := b.Release(t.Context(), []leases.Lease{first.Lease()}); errs[0] != nil {
			t.Fatal(errs)
		}
		if r := b.Acquire(t.Context(), second, false); !r.Granted {
			t.Errorf("%+v", r)
		}
	})
}

// A caller who has left gets no slot of this process while the origin hangs, because the slot would never be released.
func TestACallerWhoHasLeftGetsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := book(t, memstore.NewOrigin(memstore.OriginOptions{}))
		spare := b.Table.Try(t.Context(), &slots.Ask{Name: ask("", 0).Name, Limit: 9, TTL: 5 * time.Minute})
		if spare.Lease.Release(); !spare.Granted {
			t.Fatalf("%+v", spare)
		}
		b.Origin.(way).Faults.Delay(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		local := ask("local", 9)
		local.Local = true
		if r := b.Acquire(ctx, local, false); r.Granted || !r.Out {
			t.Errorf("%+v", r)
		}
		b.Origin.(way).Faults.Delay(0)
	})
}

// A refusal within a small limit does not apply to a larger limit.
func TestARefusalIsOfItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := book(t, memstore.NewOrigin(memstore.OriginOptions{}))
		for i, step := range []struct {
			limit   int64
			granted bool
		}{{1, true}, {1, false}, {2, true}} {
			a := ask(strings.Repeat("x", i+1), step.limit)
			a.Drawn = true
			if r := b.Acquire(t.Context(), a, false); r.Granted != step.granted {
				t.Errorf("%d: %+v", i, r)
			}
		}
	})
}

// In a process without an origin, a lease that is acquired again keeps its beginning.
func TestARepeatedCallKeepsTheBeginningAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := book(t, nil), time.Now().UnixMilli()
		for range 3 {
			again := ask("one", 1)
			if r := b.Acquire(t.Context(), again, false); !r.Granted || again.SinceMs != began {
				t.Errorf("%+v, since %d, want %d", r, again.SinceMs, began)
			}
			time.Sleep(900 * time.Millisecond)
		}
	})
}

// A token whose lease began at an impossible time is invalid.
func TestATokenOfNoTimeIsNone(t *testing.T) {
	l := ask("id", 1).Lease()
	l.SinceMs = 1<<52 + 1
	if _, err := leases.Parse(l.Token()); !errors.Is(err, leases.ErrToken) {
		t.Error(err)
	}
}

// In an outage this process grants its free slots, and makes no further call for more. A repeated call about such a
// lease gets that lease, not a second slot, also once the origin answers again.
func TestARetryAfterAnOutageHasTheLeaseOfTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := book(t, memstore.NewOrigin(memstore.OriginOptions{}))
		spare := b.Table.Try(t.Context(), &slots.Ask{Name: ask("", 0).Name, Limit: 1, TTL: 5 * time.Minute})
		if !spare.Granted {
			t.Fatalf("%+v", spare)
		}
		b.Origin.(way).Faults.Fail(errors.New("away"))
		spare.Lease.Release()
		a := ask("here", 1)
		a.Local = true
		first := b.Acquire(t.Context(), a, false)
		calls, other := b.Table.Stats().Calls, ask("other", 1)
		other.Local = true
		if r := b.Acquire(t.Context(), other, false); r.Granted || !r.Out || b.Table.Stats().Calls != calls {
			t.Errorf("beyond the free slots: %+v, by %d further calls", r, b.Table.Stats().Calls-calls)
		}
		b.Origin.(way).Faults.Fail(nil)
		if r := b.Acquire(t.Context(), ask("here", 1), false); !first.Granted || !r.Granted || r.Lease != first.Lease {
			t.Errorf("%+v, and then %+v", first, r)
		}
	})
}

// A lease that this process has granted in an outage, and that has ended, is not renewed at an origin that has lost its
// data: that would grant it a second time.
func TestALeaseOfAnOutageIsNotRevived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		b := book(t, origin)
		spare := b.Table.Try(t.Context(), &slots.Ask{Name: ask("", 0).Name, Limit: 9, TTL: 5 * time.Minute})
		if spare.Lease.Release(); !spare.Granted {
			t.Fatalf("%+v", spare)
		}
		b.Origin.(way).Faults.Fail(errors.New("away"))
		a := ask("here", 9)
		a.Local = true
		if r := b.Acquire(t.Context(), a, false); !r.Granted || !r.Out {
			t.Fatalf("%+v", r)
		}
		time.Sleep(a.TTL)
		b.Origin.(way).Faults.Fail(nil)
		origin.Wipe()
		if errs := b.Renew(t.Context(), []leases.Lease{a.Lease()}, 0); !errors.Is(errs[0], slots.ErrLost) {
			t.Error(errs)
		}
	})
}
