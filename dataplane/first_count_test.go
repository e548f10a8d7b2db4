package dataplane_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var skews = []time.Duration{24 * time.Hour, time.Hour, 90 * time.Second, 59 * time.Second, -59 * time.Second, -90 * time.Second,
	-time.Hour, -24 * time.Hour}

// skewed is a node that has not heard the origin's clock yet, and has another time.
func skewed(t *testing.T, way *memstore.Origin, skew time.Duration, row store.NamespaceRow, room int) *dataplane.Limiter {
	t.Helper()
	counts := memstore.NewCounts(memstore.CountsOptions{})
	row.Workspace, row.Namespace = "acme", "api"
	counts.SetNamespaces(row)
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: way, Settings: counts, EntriesMax: room,
		Clock: func() time.Time { return time.Now().Add(skew) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// What a node counts before it has heard the origin's clock is at the origin in the cell that the origin's clock shows,
// and nowhere else, however it was counted and whatever the node's clock shows.
func TestWhatIsCountedBeforeTheOriginsClockIsKnown(t *testing.T) {
	estimates := store.NamespaceRow{Mode: "estimate"}
	for name, c := range map[string]struct {
		row   store.NamespaceRow
		away  bool // while it is counted: decisions of the exact mode wait for the origin otherwise
		count func(t *testing.T, l *dataplane.Limiter)
	}{
		"estimate": {row: estimates, count: func(t *testing.T, l *dataplane.Limiter) { allowN(t, l, 10) }},
		"estimate batch": {row: estimates, count: func(t *testing.T, l *dataplane.Limiter) {
			if b := l.AllowMany(t.Context(), []dataplane.Request{ask("k", 4, 1000), ask("k", 6, 1000)}); !b.Allowed {
				t.Errorf("%+v", b)
			}
		}},
		"charge":          {count: charge},
		"charge estimate": {row: estimates, count: charge},
		"charge and refund": {count: func(t *testing.T, l *dataplane.Limiter) {
			charge(t, l)
			charge(t, l)
			if n, err := l.Refund(ask("k", 10, 1000)); n != 10 || err != nil {
				t.Error(n, err)
			}
		}},
		"outage":      {away: true, count: func(t *testing.T, l *dataplane.Limiter) { allowN(t, l, 10) }},
		"outage open": {row: store.NamespaceRow{Outage: "open"}, away: true, count: func(t *testing.T, l *dataplane.Limiter) { allowN(t, l, 10) }},
		"reservation": {away: true, count: func(t *testing.T, l *dataplane.Limiter) {
			held, d := l.Reserve(context.Background(), ask("k", 4, 1000))
			if change, err := held.Settle(10); !d.Allowed || change != 6 || err != nil {
				t.Error(d, change, err)
			}
		}},
	} {
		for _, skew := range skews {
			for _, first := range []string{"send", "decision"} { // what hears the clock first
				t.Run(fmt.Sprint(name, "/", skew, "/", first), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						origin := memstore.NewOrigin(memstore.OriginOptions{})
						way := origin.Client()
						l := skewed(t, way, skew, c.row, 0)
						if c.away {
							way.Faults.Delay(time.Hour)
						}
						c.count(t, l)
						l.AwaitCalls()
						way.Faults.Delay(0)
						time.Sleep(2 * time.Second) // breakers and rests
						if first == "decision" {
							other := ask("other", 1, 10)
							other.Namespace = "exact"
							if d := l.Allow(t.Context(), other); d.Source != dataplane.SourceOrigin {
								t.Errorf("%+v", d)
							}
						}
						for range 2 {
							if err := l.ReplayOnce(t.Context()); err != nil {
								t.Error(err)
							}
							if err := l.SyncOnce(t.Context()); err != nil {
								t.Error(err)
							}
						}
						l.AwaitCalls()
						got := totals(origin)
						maps.DeleteFunc(got, func(c window.Cell, n int64) bool { return c.Identifier == "other" || n == 0 })
						key := windowKey(ask("k", 1, 10))
						if c.row.Mode != "" {
							key.Mode = window.Estimate
						}
						want := map[window.Cell]int64{{Key: key, Sequence: window.Sequence(time.Now().UnixMilli(), key.DurationMs())}: 10}
						if !maps.Equal(got, want) {
							t.Errorf("the origin has %v, want %v", got, want)
						}
						if d := l.Peek(t.Context(), ask("k", 1, 1000)); d.Current != 11 {
							t.Errorf("the node: %+v", d)
						}
						if n, err := l.Refund(ask("k", 10, 1000)); n != 10 || err != nil {
							t.Error(n, err)
						}
						l.AwaitCalls()
					})
				})
			}
		}
	}
}

func allowN(t *testing.T, l *dataplane.Limiter, n int) {
	t.Helper()
	for range n {
		if d := l.Allow(t.Context(), ask("k", 1, 1000)); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
}

func charge(t *testing.T, l *dataplane.Limiter) {
	t.Helper()
	if n, err := l.Charge(ask("k", 10, 1000)); n != 10 || err != nil {
		t.Error(n, err)
	}
}

// Nothing waits for the clock that did not wait before: estimates, charges and refunds are answered at once while the
// origin hangs, and nothing of them is sent until its clock is known.
func TestNothingIsSentBeforeTheOriginsClockIsKnown(t *testing.T) {
	for _, row := range []store.NamespaceRow{{}, {Mode: "estimate"}} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			way := origin.Client()
			l := skewed(t, way, time.Hour, row, 0)
			way.Faults.Fail(errDown)
			began := time.Now()
			charge(t, l)
			if _, err := l.Refund(ask("k", 1, 1000)); err != nil {
				t.Error(err)
			}
			if row.Mode != "" {
				allowN(t, l, 1)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("they took %v", took)
			}
			way.Faults.LoseReplies(true) // what is sent is applied, and the clock stays unknown
			way.Faults.Fail(nil)
			for range 3 {
				_, _ = l.ReplayOnce(t.Context()), l.SyncOnce(t.Context())
			}
			l.AwaitCalls()
			if got := totals(origin); len(got) > 0 {
				t.Errorf("the origin has %v", got)
			}
		})
	}
}

// What a node charges on a key without room before it has heard the origin's clock, it knows afterwards.
func TestAChargeWithoutRoomBeforeTheOriginsClockIsKnown(t *testing.T) {
	for _, row := range []store.NamespaceRow{{}, {Mode: "estimate"}} {
		for _, skew := range skews {
			synctest.Test(t, func(t *testing.T) {
				l := skewed(t, memstore.NewOrigin(memstore.OriginOptions{}).Client(), skew, row, 1)
				taken := ask("taken", 1, 1)
				taken.Namespace = "exact"
				if _, err := l.Charge(taken); err != nil {
					t.Fatal(err)
				}
				if n, err := l.Charge(ask("k", 100, 100)); n != 100 || err != nil {
					t.Fatal(n, err)
				}
				other := ask("other", 1, 10)
				other.Namespace = "exact"
				if d := l.Allow(t.Context(), other); d.Source != dataplane.SourceOrigin {
					t.Errorf("%+v", d)
				}
				if d := l.Allow(t.Context(), ask("k", 1, 100)); d.Allowed {
					t.Errorf("mode %q, skew %v: 100 of 100 were charged: %+v", row.Mode, skew, d)
				}
				l.AwaitCalls()
			})
		}
	}
}
