package fair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func called(label string) Caller { return In(With(context.Background(), label)) }

func TestACallerIsItsLabel(t *testing.T) {
	ctx := t.Context()
	a, b := Space{"acme", "api"}, Space{"acme", "jobs"}
	for _, c := range []struct {
		what string
		got  Caller
		want Caller
		same bool
	}{
		{"no label", In(With(ctx, "")), 0, true},
		{"a label twice", called("a"), called("a"), true},
		{"two labels", called("a"), called("b"), false},
		{"a namespace twice", In(OrSpace(ctx, a)), In(OrSpace(ctx, a)), true},
		{"two namespaces", In(OrSpace(ctx, a)), In(OrSpace(ctx, b)), false},
		{"a label and its namespace", In(OrSpace(With(ctx, "a"), a)), called("a"), true},
	} {
		if same := c.got == c.want; same != c.same {
			t.Errorf("%s: %x and %x", c.what, c.got, c.want)
		}
	}
	if c := In(OrSpace(ctx, a)); c.Labelled() || !called("a").Labelled() {
		t.Error("a namespace's callers without a label are taken for one with a label, or the other way round")
	}
}

func TestSharesOfPlaces(t *testing.T) {
	space := func(i int) Space { return Space{"acme", strconv.Itoa(i)} }
	for _, c := range []struct {
		name  string
		users int
		of    func(i int) Of
		each  int64 // places at least, when all want as many as they can get
		most  int64 // places at most
	}{
		{"a namespace", 1, func(int) Of { return Of{Space: space(0)} }, 750, 750},
		{"two namespaces", 2, func(i int) Of { return Of{Space: space(i)} }, 416, 417},
		{"a caller", 1, func(int) Of { return Of{called("a"), space(0)} }, 750, 750},
		{"a caller of a key", 1, func(int) Of { return Of{Caller: called("a")} }, 750, 750},
		{"two callers of a namespace", 2, func(i int) Of { return Of{called(strconv.Itoa(i)), space(0)} }, 394, 395},
		{"ten callers of a namespace", 10, func(i int) Of { return Of{called(strconv.Itoa(i)), space(0)} }, 82, 83},
		{"ten callers of ten", 10, func(i int) Of { return Of{called(strconv.Itoa(i)), space(i)} }, 91, 92},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, got := &Places{Most: 1000}, make([]int64, c.users)
			for range 1000 {
				for i := range got {
					if p.Take(c.of(i), 1) {
						got[i]++
					}
				}
			}
			if least, most := slices.Min(got), slices.Max(got); least < c.each || most > c.most {
				t.Errorf("%v places, want %d to %d each", got, c.each, c.most)
			}
			victim := Of{called("victim"), c.of(0).Space}
			if c.of(0).Caller == 0 {
				victim.Space = space(c.users)
			}
			if !p.Take(victim, 1) {
				t.Errorf("another caller finds no room beside %v", got)
			}
		})
	}
}

// A caller finds places although an earlier caller took all places that it could get, and keeps its own.
func TestALaterCallerFindsPlaces(t *testing.T) {
	space, other := Space{"acme", "api"}, Space{"acme", "jobs"}
	for _, c := range []struct {
		name  string
		first Of
		later Of
		want  int64
	}{
		{"of the same namespace", Of{called("a"), space}, Of{called("b"), space}, 7_500},
		{"of another namespace", Of{called("a"), space}, Of{called("b"), other}, 15_000},
		{"of the same key", Of{Caller: called("a")}, Of{Caller: called("b")}, 15_000},
		{"without a label", Of{called("a"), space}, Of{Space: other}, 15_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Places{Most: 100_000}
			all := func(of Of) (n int64) {
				for p.Take(of, 1) {
					n++
				}
				return n
			}
			if first, later := all(c.first), all(c.later); first != 75_000 || later != c.want {
				t.Errorf("the first took %d places, want 75000, and the later one %d, want %d", first, later, c.want)
			}
		})
	}
}

// A caller alone gets no more places by spreading them over namespaces.
func TestACallerHasOneShareInAllNamespaces(t *testing.T) {
	p, n := &Places{Most: 1000}, 0
	for i := range 1000 {
		if p.Take(Of{called("a"), Space{"acme", strconv.Itoa(i % 20)}}, 1) {
			n++
		}
	}
	if n != 750 {
		t.Errorf("a caller has %d of 1000 places in 20 namespaces, want 750", n)
	}
}

// In whatever order callers come, and however many places each of them takes and gives back, a caller with fewer than
// 1/1024 of the places is refused only if at least 63 others have places.
func TestTheReserveIsForSmallCallers(t *testing.T) {
	const most, least = 64 * 1024, 64
	t.Run("one after the other", func(t *testing.T) {
		p := &Places{Most: most}
		for i := range 60 {
			of, n := Of{called(strconv.Itoa(i)), Space{"acme", strconv.Itoa(i % 3)}}, 0
			for p.Take(of, 1) {
				n++
			}
			if n < least {
				t.Fatalf("caller %d got %d places, want at least %d", i, n, least)
			}
		}
	})
	t.Run("in any order", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			p, held := &Places{Most: most}, make(map[Of]int64)
			for range rapid.IntRange(1, 300).Draw(t, "steps") {
				i := rapid.IntRange(0, 199).Draw(t, "caller")
				of := Of{called(strconv.Itoa(i)), Space{"acme", strconv.Itoa(i % 3)}}
				if n := held[of]; n > 0 && rapid.Bool().Draw(t, "give") {
					n = rapid.Int64Range(1, n).Draw(t, "n")
					p.Give(of, n)
					held[of] -= n
					continue
				}
				n := int64(0)
				for wants := rapid.Int64Range(1, most).Draw(t, "wants"); n < wants && p.Take(of, 1); n++ {
				}
				if held[of] += n; n == 0 && held[of] < least && len(p.callers) < 63 {
					t.Fatalf("a caller with %d places is refused beside %d others", held[of], len(p.callers))
				}
			}
		})
	})
}

// Whatever callers take and give back, no more places are taken than there are, and a caller without a place needs no
// memory.
func TestPlacesKeepTheirShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(1, 60).Draw(t, "most")
		p, held, used := &Places{Most: most}, make(map[Of]int64), int64(0)
		ofs := []Of{{}, {Space: Space{"w", "n"}}}
		for i := range 3 {
			ofs = append(ofs, Of{called(strconv.Itoa(i)), Space{"w", "n"}}, Of{called(strconv.Itoa(i)), Space{"w", "m"}})
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				of, n := rapid.SampledFrom(ofs).Draw(t, "of"), rapid.Int64Range(1, 3).Draw(t, "n")
				if p.Take(of, n) {
					held[of] += n
					used += n
				}
			},
			"give": func(t *rapid.T) {
				if of := rapid.SampledFrom(ofs).Draw(t, "of"); held[of] > 0 {
					n := rapid.Int64Range(1, held[of]).Draw(t, "n")
					p.Give(of, n)
					held[of] -= n
					used -= n
				}
			},
			"": func(t *rapid.T) {
				callers, spaces := make(map[Caller]int64), make(map[Space]int64)
				for of, n := range held {
					if n > 0 && of.Caller != 0 {
						callers[of.Caller] += n
					}
					if n > 0 && of.Space != (Space{}) {
						spaces[of.Space] += n
					}
				}
				if p.Used() != used || used > most+2 || len(p.callers) != len(callers) || len(p.spaces) != len(spaces) {
					t.Fatalf("%d of %d places for %v and %v, want %d for %v and %v", p.Used(), most, p.callers, p.spaces, used,
						callers, spaces)
				}
				for c, n := range callers {
					if p.callers[c] != n {
						t.Fatalf("%d places of a caller who has %d", p.callers[c], n)
					}
				}
			},
		})
	})
}

// order empties a line, and returns whose turn it was.
func order(l *Line[string]) (all []string) {
	for w := l.First(); w != nil; w = l.First() {
		l.Serve(w)
		l.Remove(w)
		all = append(all, w.Value)
	}
	return all
}

func TestCallersTakeTurns(t *testing.T) {
	var l Line[string]
	add := func(names ...string) {
		for _, name := range names {
			l.Add(called(name[:1]), name)
		}
	}
	add("a1", "a2", "a3", "a4", "b1", "c1", "b2")
	if got, want := fmt.Sprint(order(&l)), "[a1 b1 c1 a2 b2 a3 a4]"; got != want {
		t.Errorf("in turn: %s, want %s", got, want)
	}
	add("a1", "a2", "a3")
	first := l.First()
	l.Serve(first)
	l.Remove(first)
	add("b1", "a4", "b2") // b comes after an entry of a's
	if got, want := fmt.Sprint(order(&l)), "[a2 b1 a3 b2 a4]"; got != want {
		t.Errorf("a caller who comes later: %s, want %s", got, want)
	}
	if len(l.callers) != 0 {
		t.Errorf("%d callers are remembered who wait for nothing", len(l.callers))
	}
}

// A line has the order of a queue for each caller, whichever callers leave it meanwhile.
func TestALineAgreesWithAQueueForEachCaller(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line[string]
		var all []*Wait[string]
		served, last := uint64(0), make(map[Caller]uint64)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				by := Caller(rapid.IntRange(1, 4).Draw(t, "caller") << 1)
				if l.Of(by) == 0 {
					delete(last, by)
				}
				last[by] = max(last[by], served) + 1
				w := l.Add(by, "")
				at := slices.IndexFunc(all, func(o *Wait[string]) bool { return o.turn > last[by] })
				if at < 0 {
					at = len(all)
				}
				all = slices.Insert(all, at, w)
			},
			"leave": func(t *rapid.T) {
				if len(all) > 0 {
					i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					l.Remove(all[i])
					all = slices.Delete(all, i, i+1)
				}
			},
			"serve": func(*rapid.T) {
				if len(all) > 0 {
					served = max(served, all[0].turn)
					l.Serve(all[0])
					l.Remove(all[0])
					all = all[1:]
				}
			},
			"": func(t *rapid.T) {
				var got []*Wait[string]
				for w := l.First(); w != nil; w = w.Next() {
					if got = append(got, w); !w.Queued() || w.next == nil && w != l.last || w.next != nil && w.next.prev != w {
						t.Fatal("the line is broken")
					}
				}
				if !slices.Equal(got, all) {
					t.Fatalf("%d wait in another order than %d", len(got), len(all))
				}
			},
		})
	})
}

// A call that may begin at the moment in which its context ends takes a place or leaves it, and no place is lost.
func TestACallThatMayBeginAsItsContextEndsLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		for range 100 {
			if err := turns.Begin(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if turns.Begin(ctx, called("a")) == nil {
					turns.End()
				}
			}()
			synctest.Wait()
			turns.mu.Lock() // so the call sees both at once
			cancel()
			turns.endLocked()
			turns.mu.Unlock()
			synctest.Wait()
			if turns.free != 1 {
				t.Fatalf("%d places are free, want 1", turns.free)
			}
		}
	})
}

// However many calls a caller has waiting, another caller's call begins when the next call ends.
func TestACallBeginsAfterOneOfEachOtherCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(2)
		begin := func(by Caller, lasts time.Duration, done func(error)) {
			go func() {
				err := turns.Begin(t.Context(), by)
				time.Sleep(lasts)
				turns.End()
				done(err)
			}()
			synctest.Wait()
		}
		for range 1000 {
			begin(called("flood"), time.Second, func(error) {})
		}
		for range 5 {
			from, took := time.Now(), make(chan time.Duration, 1)
			begin(called("victim"), 0, func(error) { took <- time.Since(from) })
			if d := <-took; d > 2*time.Second {
				t.Errorf("a call beside a flood took %v, want at most two calls' time", d)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := turns.Begin(short, called("victim")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that could not begin in time: %v", err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if turns.free != 2 || turns.line.First() != nil {
			t.Errorf("%d of 2 places are free, and somebody waits: %v", turns.free, turns.line.First() != nil)
		}
	})
}
