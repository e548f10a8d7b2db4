package held

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// counted is a node's reservations at an origin, and how many calls it makes about holds.
func counted(origin store.Origin) (s *There, calls *atomic.Int64) {
	calls = new(atomic.Int64)
	s = &There{Origin: origin, NowMs: func() int64 { return time.Now().UnixMilli() },
		Heard: func(int, []store.Hold, []store.Total) {}}
	s.Call = func(ctx context.Context, _ int, what What, _ int, call func(context.Context) (store.Reply, error)) error {
		if what == Hold {
			calls.Add(1)
		}
		_, err := call(ctx)
		return err
	}
	return s, calls
}

// reserves asks for costs of keys of 100 a minute; several costs of one key are several items.
func reserves(t *testing.T, s *There, id string, costs ...keyCost) (ok, asked bool) {
	t.Helper()
	nowMs := s.NowMs()
	r := &Record{Returned: true, MadeMs: nowMs, EndsMs: nowMs + 60_000, MadeBy: 7}
	for _, c := range costs {
		r.Items = append(r.Items, Item{Workspace: "w", Namespace: "n", Identifier: c.key, DurationMs: 60_000,
			Sequence: window.Sequence(nowMs, 60_000), Limit: 100, Held: c.cost})
	}
	_, ok, err := s.Reserve(t.Context(), id, r, func(answers []store.HoldAnswer, was bool) (bool, error) {
		asked = was
		for i := range answers {
			if !answers[i].Granted {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ok, asked
}

type keyCost struct {
	key  string
	cost int64
}

// "A flood of such requests is none at the origin": of 1,000 within a second it is asked about 50.
func TestAFloodOfRefusedReservationsIsNoneAtTheOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, calls := counted(memstore.NewOrigin(memstore.OriginOptions{}))
		if ok, _ := reserves(t, s, "all", keyCost{"k", 100}, keyCost{"free", 1}); !ok {
			t.Fatal("the first is refused")
		}
		time.Sleep(heardFor)
		calls.Store(0)
		for i := range 1000 {
			if ok, _ := reserves(t, s, fmt.Sprint("more", i), keyCost{"free", 1}, keyCost{"k", 1}); ok {
				t.Fatal("101 of 100")
			}
			time.Sleep(time.Millisecond)
		}
		if n := calls.Load(); n > 100 {
			t.Errorf("%d calls", n)
		}
	})
}

// A refusal refuses what does not fit either, and nothing else: not what fits, not what was reserved by the same id,
// not a key that nothing is known of, and nothing for longer than 20 ms, or once room was made here.
func TestWhatWasHeardRefusesOnlyWhatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := counted(memstore.NewOrigin(memstore.OriginOptions{}))
		other, _ := counted(s.Origin)
		want := func(what string, s *There, id string, ok, asked bool, costs ...keyCost) {
			t.Helper()
			if gotOK, gotAsked := reserves(t, s, id, costs...); gotOK != ok || gotAsked != asked {
				t.Errorf("%s: ok %v, asked %v", what, gotOK, gotAsked)
			}
		}
		settle := func(r *Record, _ int64) (*Record, error) { return r.Spend(make([]int64, len(r.Items)), true), nil }
		want("room", s, "a", true, true, keyCost{"k", 60})
		want("too much", s, "b", false, true, keyCost{"k", 41})
		want("too much again", s, "c", false, false, keyCost{"k", 41})
		want("too much in two", s, "c", false, false, keyCost{"k", 40}, keyCost{"k", 1})
		want("beside what is not known", s, "d", false, true, keyCost{"k", 41}, keyCost{"l", 1})
		want("and is known then", s, "d", false, false, keyCost{"k", 41}, keyCost{"l", 1})
		want("the same again", s, "a", true, true, keyCost{"k", 60})
		want("what fits", s, "e", true, true, keyCost{"k", 40})
		want("full", s, "f", false, true, keyCost{"k", 1})
		if _, _, err := other.Change(t.Context(), "e", settle); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heardFor - time.Millisecond)
		want("19 ms later", s, "f", false, false, keyCost{"k", 1})
		time.Sleep(time.Millisecond)
		want("20 ms later", s, "f", true, true, keyCost{"k", 1})
		want("too much", s, "g", false, true, keyCost{"k", 40})
		if _, _, err := s.Change(t.Context(), "f", settle); err != nil {
			t.Fatal(err)
		}
		want("room made here", s, "g", true, true, keyCost{"k", 40})
	})
}
