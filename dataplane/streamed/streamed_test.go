package streamed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/streamed"
	"github.com/weirhq/weir/shared/window"
)

var errDown = errors.New("it is down")

// nodes returns limiters of a region; stop ends them.
func nodes(t *testing.T, origin *memstore.Origin, n int) (all []*dataplane.Limiter, stop func()) {
	t.Helper()
	for i := range n {
		l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: fmt.Sprint(i), Origin: origin, RegionNodes: n})
		if err == nil {
			err = l.Start(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all, func() {
		for _, l := range all {
			_ = l.Stop(context.Background())
		}
	}
}

func metered(t *testing.T, by streamed.Reservations, change func(*streamed.Config)) *streamed.Streams {
	t.Helper()
	cfg := streamed.Config{Reservations: by}
	if change != nil {
		change(&cfg)
	}
	s, err := streamed.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tokens(key string, cost, limit int64) dataplane.Request {
	return dataplane.Request{Workspace: "acme", Namespace: "tokens", Identifier: key, Limit: limit,
		Duration: 24 * time.Hour, Cost: cost, ZeroCost: cost == 0}
}

func begin(t *testing.T, s *streamed.Streams, ttl time.Duration, requests ...dataplane.Request) *streamed.Meter {
	t.Helper()
	m, got := s.Begin(t.Context(), dataplane.ReserveRequest{Requests: requests, TTL: ttl, Returned: true})
	if got.Err != nil || !got.Allowed || m.ID() != got.ID {
		t.Fatalf("%+v", got)
	}
	return m
}

// used returns how much a key's reservations count now.
func used(t *testing.T, l *dataplane.Limiter, key string) int64 {
	t.Helper()
	nothing := []dataplane.Request{tokens(key, 0, window.LimitMax)}
	got := l.Reserve(t.Context(), dataplane.ReserveRequest{Requests: nothing})
	if got.Err != nil || !got.Allowed {
		t.Fatalf("%+v", got)
	}
	return window.LimitMax - got.Decisions[0].Remaining
}

func wantUsed(t *testing.T, what string, l *dataplane.Limiter, key string, want int64) {
	t.Helper()
	if got := used(t, l, key); got != want {
		t.Errorf("%s: %d are counted, want %d", what, got, want)
	}
}

// at runs a test in virtual time on two nodes of a region.
func at(t *testing.T, test func(t *testing.T, origin *memstore.Origin, a, b *dataplane.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		all, stop := nodes(t, origin, 2)
		defer stop()
		test(t, origin, all[0], all[1])
	})
}

// watched counts the calls of a limiter, and delays them while it is closed.
type watched struct {
	*dataplane.Limiter
	spends, extends, settles atomic.Int64
	gate                     atomic.Pointer[chan struct{}]
}

// close delays calls until open.
func (w *watched) close() (open func()) {
	gate := make(chan struct{})
	w.gate.Store(&gate)
	return func() { close(gate) }
}

func (w *watched) pass(ctx context.Context, n *atomic.Int64) {
	n.Add(1)
	if gate := w.gate.Load(); gate != nil {
		select {
		case <-*gate:
		case <-ctx.Done():
		}
	}
}

func (w *watched) Spend(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error) {
	w.pass(ctx, &w.spends)
	return w.Limiter.Spend(ctx, id, costs...)
}

func (w *watched) Settle(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error) {
	w.pass(ctx, &w.settles)
	return w.Limiter.Settle(ctx, id, costs...)
}

func (w *watched) Extend(ctx context.Context, id string, ttl time.Duration) (dataplane.Settlement, error) {
	w.pass(ctx, &w.extends)
	return w.Limiter.Extend(ctx, id, ttl)
}

// "After End it settles: the spent cost counts, also past the ceiling and the limit, and the rest is free for others."
func TestAStreamSettlesWhatItSpent(t *testing.T) {
	at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
		s := metered(t, a, nil)
		ctx, cancel := context.WithCancel(t.Context())
		both := []dataplane.Request{tokens("org", 60, 100), tokens("model", 60, 1000)}
		m, got := s.Begin(ctx, dataplane.ReserveRequest{Requests: both})
		if !got.Allowed {
			t.Fatalf("%+v", got)
		}
		wantUsed(t, "begun", b, "org", 60)
		m.Spent(10)
		m.SpentOf(1, 5)
		m.SpentOf(7, 100) // a place that the reservation does not have
		m.SpentOf(-1, 100)
		m.Spent(-1)
		cancel() // the client leaves, and then the handler panics
		func() {
			defer func() { _ = recover() }()
			defer m.End()
			panic("it fails")
		}()
		m.End()
		if err := m.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		wantUsed(t, "less", b, "org", 10)
		wantUsed(t, "less", b, "model", 15)

		m = begin(t, s, 0, tokens("org", 90, 100))
		m.Spent(200)
		m.End()
		if err := m.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		wantUsed(t, "more", b, "org", 210)
		one := []dataplane.Request{tokens("org", 1, 100)}
		if m, got := s.Begin(t.Context(), dataplane.ReserveRequest{Requests: one}); m != nil || got.Allowed ||
			got.Decisions[0].RetryAfter <= 0 {
			t.Errorf("past the limit: %+v", got)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if _, got := s.Begin(t.Context(), dataplane.ReserveRequest{}); !errors.Is(got.Err, streamed.ErrStopped) {
			t.Errorf("after Stop: %+v", got)
		}
	})
}

// "A total below the reported cost changes nothing."
func TestTheTruthMayComeLast(t *testing.T) {
	at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
		s := metered(t, a, nil)
		m := begin(t, s, 0, tokens("org", 60, 100))
		m.Spent(5)
		m.InAll(3)
		m.End()
		_ = m.Wait(t.Context())
		wantUsed(t, "less", b, "org", 3)
		m = begin(t, s, 0, tokens("org", 60, 100))
		m.Spent(20)
		time.Sleep(2 * time.Second)
		m.InAll(10)
		m.End()
		_ = m.Wait(t.Context())
		wantUsed(t, "told", b, "org", 23)
	})
}

// "The stream never waits for the origin", and "one call at a time: when a share of the ceiling was spent, each Every,
// and never more often than ten times a second".
func TestAStreamMakesFewCallsAndWaitsForNone(t *testing.T) {
	at(t, func(t *testing.T, _ *memstore.Origin, a, _ *dataplane.Limiter) {
		w := &watched{Limiter: a}
		s := metered(t, w, nil)
		m := begin(t, s, 0, tokens("org", 100_000, 1<<40))
		for range 10_000 { // within the ceiling: for time
			m.Spent(1)
			time.Sleep(time.Millisecond)
		}
		if n := w.spends.Load(); n < 8 || n > 11 {
			t.Errorf("%d calls in 10 s", n)
		}
		for range 1000 { // far past it: for cost
			m.Spent(100_000)
			time.Sleep(time.Millisecond)
		}
		if n := w.spends.Load(); n < 15 || n > 22 {
			t.Errorf("%d calls in 11 s", n)
		}
		open := w.close()
		began := time.Now()
		for range 10_000 {
			m.Spent(100_000)
		}
		time.Sleep(time.Second)
		m.Spent(1)
		m.End()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it waited %v", took-time.Second)
		}
		open()
		if err := m.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		wantUsed(t, "all of it", a, "org", 10_000+11_000*100_000+1)
	})
}

// "the meter reports the spent cost and extends the reservation": other nodes count cost past the ceiling, and a silent
// stream keeps its reservation.
func TestOthersSeeAStreamGoOn(t *testing.T) {
	at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
		w := &watched{Limiter: a}
		s := metered(t, w, nil)
		m := begin(t, s, 10*time.Second, tokens("org", 80, 1000))
		m.Spent(300)
		time.Sleep(150 * time.Millisecond)
		wantUsed(t, "past the ceiling", b, "org", 300)
		time.Sleep(10 * time.Minute)
		wantUsed(t, "after a silence", b, "org", 300)
		if n, spends := w.extends.Load(), w.spends.Load(); n < 100 || n > 130 || spends != 1 {
			t.Errorf("%d and %d calls in ten minutes", n, spends)
		}
		if is, err := b.Spend(t.Context(), m.ID(), 0); err != nil || is.Late {
			t.Errorf("it has another reservation: %+v, %v", is, err)
		}
		m.End()
		if err := m.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// "Cost counts in the window in which it is reported": a stream that outlasts its window is limited in the next.
func TestAStreamThatOutlastsItsWindowIsCounted(t *testing.T) {
	for _, ceiling := range []int64{10, 1000} {
		at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
			s := metered(t, a, nil)
			ask := func(cost int64) dataplane.Request {
				r := tokens("org", cost, 10_000)
				r.Duration = time.Minute
				return r
			}
			m := begin(t, s, 0, ask(ceiling))
			for i := range int64(300) {
				m.Spent(2)
				time.Sleep(time.Second)
				if i < 60 || i%30 != 29 {
					continue
				}
				got := b.Reserve(t.Context(), dataplane.ReserveRequest{Requests: []dataplane.Request{ask(0)}})
				counted, rest := 10_000-got.Decisions[0].Remaining, max(0, ceiling-2*i)
				if counted < 110 || counted > 130+rest {
					t.Errorf("after %d s %d are counted: 120 a minute, and %d are left of the ceiling", i+1, counted, rest)
				}
			}
			m.End()
			if err := m.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// "the meter settles the reservation, and makes another from the rest of the ceiling", in each window for as long as
// the stream lasts: here for 25 minutes with windows of a second, under the longest ID.
//
//weir:unraced
func TestALongStreamIsCountedInEachWindow(t *testing.T) {
	at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
		s := metered(t, a, nil)
		ask := func(cost int64) dataplane.Request {
			r := tokens("org", cost, 10_000)
			r.Duration = time.Second
			return r
		}
		m, first := s.Begin(t.Context(), dataplane.ReserveRequest{ID: strings.Repeat("x", streamed.IDBytesMax),
			Requests: []dataplane.Request{ask(10)}})
		if !first.Allowed {
			t.Fatalf("%+v", first)
		}
		for i := range 1500 {
			time.Sleep(time.Second / 2)
			m.Spent(100)
			time.Sleep(time.Second / 2)
			if i%100 != 99 {
				continue
			}
			got := b.Reserve(t.Context(), dataplane.ReserveRequest{Requests: []dataplane.Request{ask(0)}})
			if counted := 10_000 - got.Decisions[0].Remaining; counted != 100 {
				t.Errorf("in window %d %d are counted, want 100", i+1, counted)
			}
		}
		m.End()
		if err := m.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If the origin's clock is late, each window seems to be over as it begins. A stream then goes on to the next
// reservation once in a window, and not at each look.
func TestALateClockMakesNoMoreReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := memstore.OriginOptions{Clock: func() time.Time { return time.Now().Add(-time.Minute) }}
		all, stop := nodes(t, memstore.NewOrigin(late), 1)
		defer stop()
		w := &watched{Limiter: all[0]}
		r := tokens("org", 10, 10_000)
		r.Duration = 20 * time.Second
		m := begin(t, metered(t, w, nil), 0, r)
		for range 200 {
			m.Spent(1)
			time.Sleep(time.Second)
		}
		if n := w.settles.Load(); n < 8 || n > 11 {
			t.Errorf("%d reservations in 10 windows", n)
		}
		m.End()
		if err := m.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// "A reservation may end early … Then the meter makes another reservation, and settles there the cost that came too
// late for the first."
func TestAReservationThatEndedInAPauseIsCounted(t *testing.T) {
	for _, returned := range []bool{true, false} {
		t.Run(fmt.Sprint("returned ", returned), func(t *testing.T) {
			at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
				w := &watched{Limiter: a}
				s := metered(t, w, nil)
				ask := func(key string) dataplane.ReserveRequest {
					return dataplane.ReserveRequest{Requests: []dataplane.Request{tokens(key, 60, 100)}, TTL: 10 * time.Second,
						Returned: returned}
				}
				ended, got := s.Begin(t.Context(), ask("org"))
				goesOn, got2 := s.Begin(t.Context(), ask("other"))
				if !got.Allowed || !got2.Allowed {
					t.Fatal(got, got2)
				}
				ended.Spent(7)
				goesOn.Spent(7)
				time.Sleep(2 * time.Second)
				open := w.close() // the process stands still
				ended.Spent(13)
				goesOn.Spent(13)
				time.Sleep(30 * time.Second)
				counts := map[bool]int64{true: 7, false: 60}[returned]
				wantUsed(t, "it has ended", b, "org", counts)
				rest := []dataplane.Request{tokens("org", 100-counts, 100)}
				full := b.Reserve(t.Context(), dataplane.ReserveRequest{Requests: rest, TTL: time.Hour})
				if !full.Allowed {
					t.Fatal(full)
				}
				open()
				ended.End()
				if err := ended.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				wantUsed(t, "counted past the limit", b, "org", 100+max(0, 20-counts))
				time.Sleep(6 * time.Second)
				wantUsed(t, "reserved again", b, "other", 60)
				goesOn.Spent(80)
				goesOn.End()
				if err := goesOn.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				wantUsed(t, "settled there", b, "other", 100)
			})
		})
	}
}

// If another caller has settled a reservation with less, the spent cost is counted all the same, also if all of it
// would have counted at its end.
func TestWhatAnotherHasSettledIsCountedInFull(t *testing.T) {
	for _, returned := range []bool{true, false} {
		at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
			m, got := metered(t, a, nil).Begin(t.Context(), dataplane.ReserveRequest{Returned: returned,
				Requests: []dataplane.Request{tokens("org", 60, 100)}})
			if got.Err != nil || !got.Allowed {
				t.Fatalf("%+v", got)
			}
			if _, err := b.Cancel(t.Context(), m.ID()); err != nil {
				t.Fatal(err)
			}
			m.Spent(40)
			m.End()
			if err := m.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			wantUsed(t, fmt.Sprint("cancelled, returned ", returned), b, "org", 40)
		})
	}
}

// If another stream of the same ID has taken the ID of the next reservation, the reservation after it counts the cost.
func TestAnotherStreamOfTheIDHidesNoCost(t *testing.T) {
	at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
		m := begin(t, metered(t, a, nil), 0, tokens("org", 60, 100))
		other := dataplane.ReserveRequest{ID: m.ID() + "~1", Requests: []dataplane.Request{tokens("other", 5, 100)}}
		if got := b.Reserve(t.Context(), other); !got.Allowed {
			t.Fatalf("%+v", got)
		}
		if _, err := b.Cancel(t.Context(), m.ID()); err != nil {
			t.Fatal(err)
		}
		m.Spent(40)
		m.End()
		if err := m.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		wantUsed(t, "in the second place", b, "org", 40)
		wantUsed(t, "of the other", b, "other", 5)
	})
}

// A cost above the largest limit counts as the largest limit, so a stream that spends too much is settled too.
func TestCostsBeyondTheLargestLimitAreSettled(t *testing.T) {
	at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
		m := begin(t, metered(t, a, nil), 0, tokens("org", 60, 100))
		m.Spent(window.LimitMax)
		m.Spent(window.LimitMax)
		m.End()
		if err := m.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		wantUsed(t, "all", b, "org", window.LimitMax)
	})
}

// "as long as … the origin answers within Config.Within of the stream's end": after that Uncounted receives the lost
// cost.
func TestAnOriginThatStaysAwayIsTold(t *testing.T) {
	at(t, func(t *testing.T, origin *memstore.Origin, a, b *dataplane.Limiter) {
		var lost []int64
		s := metered(t, a, func(cfg *streamed.Config) {
			cfg.Within = 20 * time.Second
			cfg.Uncounted = func(_ string, costs []int64, err error) {
				if lost = costs; err == nil {
					t.Error("without a reason")
				}
			}
		})
		short, long := begin(t, s, time.Minute, tokens("org", 60, 100)), begin(t, s, time.Minute, tokens("org", 10, 100))
		short.Spent(30)
		long.Spent(9)
		time.Sleep(2 * time.Second)
		origin.Faults.Fail(errDown)
		short.Spent(5)
		short.End()
		time.Sleep(10 * time.Second)
		long.End()
		if err := short.Wait(t.Context()); err == nil || !slices.Equal(lost, []int64{5}) {
			t.Errorf("%v, %v are lost", err, lost)
		}
		origin.Faults.Fail(nil)
		if err := long.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		wantUsed(t, "what was said", b, "org", 39)
	})
}

// Stop returns when its context ends, and leaves no goroutine (synctest would fail).
func TestStopGivesUp(t *testing.T) {
	at(t, func(t *testing.T, origin *memstore.Origin, a, _ *dataplane.Limiter) {
		s := metered(t, a, nil)
		m := begin(t, s, 0, tokens("org", 60, 100))
		begin(t, s, 0, tokens("org", 1, 100)) // never ends
		origin.Faults.Fail(errDown)
		m.End()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := m.Wait(t.Context()); !errors.Is(err, streamed.ErrStopped) {
			t.Error(err)
		}
		origin.Faults.Fail(nil)
	})
}

// A key of any bytes and any length is counted, and a cost beyond every limit is denied: a limited caller chooses both.
func TestWhatCallersChooseIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stop := nodes(t, memstore.NewOrigin(memstore.OriginOptions{}), 1)
		defer stop()
		streams := metered(t, all[0], nil)
		defer func() { _ = streams.Stop(context.Background()) }()
		for _, key := range []string{"", "\xff", strings.Repeat("k", 300), strings.Repeat("k", 301)} {
			requests := []dataplane.Request{tokens(key, 60, 100)}
			meter, got := streams.Begin(t.Context(), dataplane.ReserveRequest{Requests: requests})
			if meter == nil {
				t.Fatalf("%.20q: %+v", key, got)
			}
			if requests[0].Identifier != key {
				t.Errorf("the caller's request has become %q", requests[0].Identifier)
			}
			if second, got := streams.Begin(t.Context(), dataplane.ReserveRequest{Requests: requests}); second != nil || got.Err != nil || got.Allowed {
				t.Errorf("%.20q twice: %+v", key, got)
			}
			meter.End()
		}
		if meter, got := streams.Begin(t.Context(), dataplane.ReserveRequest{Requests: []dataplane.Request{tokens("k", math.MaxInt64, 100)}}); meter != nil || got.Err != nil || !got.Decisions[0].NeverPasses {
			t.Errorf("a cost beyond every limit: %+v", got)
		}
	})
}

func TestConfigsNameWhatIsWrong(t *testing.T) {
	l, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]streamed.Config{
		"Reservations is nil":              {},
		"Every is 1ms (100ms to 1h0m0s)":   {Reservations: l, Every: time.Millisecond},
		"Parts is -1 (1 to 1000)":          {Reservations: l, Parts: -1},
		"Within is 25h0m0s (1s to 1h0m0s)": {Reservations: l, Within: 25 * time.Hour},
	} {
		if _, err := streamed.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	s := metered(t, l, nil)
	for _, bad := range []dataplane.ReserveRequest{{ID: strings.Repeat("x", streamed.IDBytesMax+1)}, {}} {
		if _, got := s.Begin(t.Context(), bad); !errors.Is(got.Err, dataplane.ErrInvalid) {
			t.Error(got.Err)
		}
	}
	var none *streamed.Meter
	none.Spent(1)
	none.SpentOf(7, 1)
	none.InAll(1)
	none.End()
	if none.Wait(t.Context()) != nil || none.ID() != "" || streamed.MeterOf(t.Context()) != nil {
		t.Error("a nil meter counts")
	}
}

// 200 streams of unknown cost on two nodes: none past the limit, and nearly all of it used.
func TestStreamsUseTheirLimit(t *testing.T) {
	at(t, func(t *testing.T, _ *memstore.Origin, a, b *dataplane.Limiter) {
		const limit, ceiling = 1_000_000, 20_000
		on := []*streamed.Streams{metered(t, a, nil), metered(t, b, nil)}
		var spent atomic.Int64
		var streams sync.WaitGroup
		for i := range 200 {
			streams.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 7))
				for spent.Load() <= limit-ceiling {
					m, got := on[rnd.IntN(2)].Begin(t.Context(), dataplane.ReserveRequest{Returned: true, TTL: 5 * time.Second,
						Requests: []dataplane.Request{tokens("k", ceiling, limit)}})
					if got.Err != nil {
						t.Error(got.Err)
						return
					}
					if !got.Allowed {
						time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
						continue
					}
					parts := 1 + rnd.IntN(200)
					for range parts {
						cost := rnd.Int64N(ceiling / int64(parts))
						m.Spent(cost)
						if now := spent.Add(cost); now > limit {
							t.Errorf("%d are spent", now)
						}
						time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
					}
					m.End()
				}
			})
		}
		streams.Wait()
		for _, s := range on {
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		got := spent.Load()
		if got > limit || got < limit*95/100 {
			t.Errorf("%d of %d were spent", got, limit)
		}
		wantUsed(t, "all of them", b, "k", got)
	})
}

// Whatever the origin does meanwhile, spent cost is counted exactly once.
func TestAnyHistoryOfFaultsCountsWhatWasSpent(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		at(t, func(t *testing.T, origin *memstore.Origin, a, b *dataplane.Limiter) {
			s := metered(t, a, func(cfg *streamed.Config) { cfg.Within = time.Hour })
			var meters []*streamed.Meter
			var spent int64
			for range rapid.IntRange(1, 3).Draw(r, "streams") {
				ttl := time.Duration(rapid.IntRange(1, 20).Draw(r, "ttl")) * time.Second
				meters = append(meters, begin(t, s, ttl, tokens("org", 100, 1000)))
			}
			for range rapid.IntRange(1, 20).Draw(r, "steps") {
				switch rapid.IntRange(0, 4).Draw(r, "what") {
				case 0:
					origin.Faults.Fail(errDown)
				case 1:
					origin.Faults.LoseReplies(true)
				case 2:
					origin.Faults.Fail(nil)
					origin.Faults.LoseReplies(false)
				default:
					cost := rapid.Int64Range(0, 100).Draw(r, "cost")
					rapid.SampledFrom(meters).Draw(r, "stream").Spent(cost)
					spent += cost
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 15_000).Draw(r, "pause")) * time.Millisecond)
			}
			origin.Faults.Fail(nil)
			origin.Faults.LoseReplies(false)
			for _, m := range meters {
				m.End()
				if err := m.Wait(t.Context()); err != nil {
					r.Error(err)
				}
			}
			time.Sleep(time.Minute) // unused reservations end
			// A node itself counts a reservation of an outage. The cost comes back as the node's credit, which pays for its next
			// cost.
			const next = 1 << 20
			if d := a.Allow(t.Context(), tokens("org", next, window.LimitMax)); !d.Allowed {
				r.Errorf("%+v", d)
			}
			time.Sleep(time.Second)
			if got := used(t, b, "org") - next; got != spent {
				r.Errorf("%d are counted, %d were spent", got, spent)
			}
		})
	})
}

// Streams that New has not made begin nothing, and return an error.
func TestZeroStreamsAreAnError(t *testing.T) {
	var s streamed.Streams
	for range 2 {
		if m, got := s.Begin(t.Context(), dataplane.ReserveRequest{Requests: []dataplane.Request{tokens("k", 1, 10)}}); m != nil || !errors.Is(got.Err, dataplane.ErrInvalid) {
			t.Errorf("%+v, %+v", m, got)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
