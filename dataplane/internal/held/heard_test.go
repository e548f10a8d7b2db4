package held

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// reserves100 requests costs of keys of 100 a minute. Several costs of a key are several items.
func reserves100(t *testing.T, s *node, id string, costs ...keyCost) (ok, asked bool) {
	t.Helper()
	ok, asked, err := tries100(t, s, id, false, costs...)
	if err != nil {
		t.Fatal(err)
	}
	return ok, asked
}

// tries100 is reserves100 with its error. If drawn is set, the ID was drawn for this request.
func tries100(t *testing.T, s *node, id string, drawn bool, costs ...keyCost) (ok, asked bool, err error) {
	t.Helper()
	r := recordOf(costs...)
	r.New = drawn
	for i := range r.Items {
		r.Items[i].DurationMs, r.Items[i].Sequence, r.Items[i].Limit = 60_000, window.Sequence(r.MadeMs, 60_000), 100
	}
	return s.tries(t.Context(), id, r)
}

// A flood of requests that do not fit requests few holds from the origin: of 1,000 within a second about 50 reach it.
// It reads a note for each request whose caller chose the ID, and none for the others.
func TestAFloodOfRefusedReservationsIsNoneAtTheOrigin(t *testing.T) {
	for name, drawn := range map[string]bool{"drawn ids": true, "ids of callers": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := nodeOf(memstore.NewOrigin(memstore.OriginOptions{Shards: 2}))
				if ok, _ := reserves100(t, s, "all", keyCost{"k", 100}, keyCost{"free", 1}); !ok {
					t.Fatal("the first is refused")
				}
				time.Sleep(heardFor)
				s.holds.Store(0)
				s.notes.Store(0)
				for i := range 1000 {
					ok, _, err := tries100(t, s, fmt.Sprint("more", i), drawn, keyCost{"free", 1}, keyCost{"k", 1})
					if ok || err != nil {
						t.Fatal("101 of 100", err)
					}
					time.Sleep(time.Millisecond)
				}
				holds, notes := s.holds.Load(), s.notes.Load()
				if holds > 50*4 || // to each of two shards, and to take back the holds that one of them has granted
					drawn && notes > 0 || notes > 1000 {
					t.Errorf("%d calls about holds, %d about notes", holds, notes)
				}
				t.Logf("%d calls about holds, %d about notes", holds, notes)
			})
		})
	}
}

// A retry at another node gets the reservation that was made with its ID, even if that node has just refused the key. A
// retry for another request, or after the end, gets the same error as at any other time.
func TestARetryAtANodeThatHasJustRefusedTheKeyHasItsReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		made, s := nodeOf(origin), nodeOf(origin)
		open, settled := []keyCost{{"k", 100}, {"l", 100}}, keyCost{"m", 100}
		if ok, _ := reserves100(t, made, "open", open...); !ok {
			t.Fatal("open is refused")
		}
		if ok, _ := reserves100(t, made, "settled", settled); !ok {
			t.Fatal("settled is refused")
		}
		settle := Change{Spent: []int64{100}, Settled: true}
		if _, _, err := made.Change(t.Context(), "settled", settle); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"k", "l", "m"} {
			if ok, _ := reserves100(t, s, "other "+key, keyCost{key, 25}); ok {
				t.Fatalf("125 of 100 of %s", key)
			}
		}
		s.holds.Store(0)
		if ok, asked, err := tries100(t, s, "open", false, open...); !ok || !asked || err != nil {
			t.Errorf("a retry is answered %v, asked %v: %v", ok, asked, err)
		}
		if ok, _, err := tries100(t, s, "open", false, keyCost{"k", 99}); ok ||
			!errors.Is(err, ErrUsed) || errors.Is(err, ErrOver) {
			t.Errorf("a request for something else is answered %v: %v", ok, err)
		}
		if ok, _, err := tries100(t, s, "settled", false, settled); ok || !errors.Is(err, ErrOver) {
			t.Errorf("a retry after the end is answered %v: %v", ok, err)
		}
		if n := s.holds.Load(); n > 2 { // for the counts of the first, and for the second, whose ID this node has by then
			t.Errorf("%d calls about holds", n)
		}
	})
}

// A refusal refuses requests that do not fit either, and no others: not a request that fits, not an ID that is
// reserved, not a key without a refusal, and no request after 20 ms, or after room was made here.
func TestWhatWasHeardRefusesOnlyWhatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		s, other := nodeOf(origin), nodeOf(origin)
		want := func(what string, s *node, id string, ok, asked bool, costs ...keyCost) {
			t.Helper()
			if gotOK, gotAsked := reserves100(t, s, id, costs...); gotOK != ok || gotAsked != asked {
				t.Errorf("%s: ok %v, asked %v", what, gotOK, gotAsked)
			}
		}
		settle := Change{Settled: true}
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
		want("full again", s, "h", false, true, keyCost{"k", 1})
		s.NowMs = func() int64 { return time.Now().Add(-10 * time.Second).UnixMilli() }
		want("the clock has gone back", s, "h", false, true, keyCost{"k", 1})
	})
}

// A repeated request for a reservation of this node is not judged by a refusal that the node has just received.
func TestARepeatedRequestIsNotRefusedByAnEarlierAnswer(t *testing.T) {
	places(t, func(t *testing.T, origin Origin, _ *memstore.Origin) {
		n := nodeOf(origin)
		n.reserves(t, "one", keyCost{"a", 900})
		if ok, asked, err := n.tries(t.Context(), "two", recordOf(keyCost{"a", 200})); ok || !asked || err != nil {
			t.Fatal(ok, asked, err)
		}
		judged := 0
		judge := func(answers []store.HoldAnswer, asked bool) (bool, error) {
			judged++
			return answers[0].Fits && asked, nil
		}
		is, ok, err := n.Reserve(t.Context(), "one", recordOf(keyCost{"a", 900}), judge)
		if !ok || err != nil || judged != 1 || is.Items[0].Held != 900 {
			t.Errorf("ok %v, %v, judged %d times", ok, err, judged)
		}
	})
}
