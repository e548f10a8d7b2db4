package relay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// Figures returns the relay's shards, its longest waiting count, its totals, and the lag of each region's rows since
// the last call.
func TestFigures(t *testing.T) {
	w, eu, us := newPair(t)
	us.away = true
	if got := eu.relay.Figures(); len(got.Held) != 0 || got.Shards != 1 || !got.InStepAt.IsZero() || len(got.LagP99) != 0 {
		t.Errorf("before it starts: %+v", got)
	}
	w.run(time.Second)
	eu.accept(eu.cell("k", time.Hour), 50, 100)
	w.run(time.Second)
	inStep := w.now
	w.feed.Faults.Fail(errDown)
	eu.accept(eu.cell("k", time.Hour), 20, 100)
	w.run(4 * time.Second)
	w.feed.Faults.Fail(nil)
	got := eu.relay.Figures()
	if !slices.Equal(got.Held, []int{0}) || !got.InStepAt.Equal(inStep) || got.Rows == 0 || got.Unpublished != 3800*time.Millisecond || got.Healed != 1 || got.Saved == 0 || got.Fenced != 0 {
		t.Errorf("with the feed down: %+v", got)
	}
	us.away = false
	w.run(interval)
	if got := us.relay.Figures().LagP99; len(got) != 1 || got["eu"] != 6*time.Second {
		t.Errorf("lag of us %v, want 6 s of eu", got)
	}
	if got := us.relay.Figures().LagP99; len(got) != 0 {
		t.Errorf("nothing was read since, and the lag is %v", got)
	}
}

// A stalled relay is noticed even if the wall clock was ahead and is corrected: InStepAt is as long ago as time has
// passed since the last success.
func TestARelaysLastSuccessDoesNotOutliveAClockThatWasAhead(t *testing.T) {
	const ahead = time.Hour
	for name, stall := range map[string]func(*region){
		"it cannot read the feed": func(r *region) { r.feed.Faults.Fail(errDown) },
		"it cannot take changes":  func(r *region) { r.relayOrigin.Faults.Refuse(errDown, memstore.OpChanges) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "eu")
			eu := w.regions[0]
			w.now = w.now.Add(ahead)
			w.run(2 * time.Second)
			w.now = w.now.Add(-ahead)
			inStep := w.now
			stall(eu)
			for range 10 {
				w.now = w.now.Add(time.Second)
				_ = eu.relay.Step(t.Context())
			}
			got := eu.relay.Figures().InStepAt
			if got.Before(inStep) || got.After(inStep.Add(time.Second)) { // the duration of a step is unknown
				t.Errorf("it was in step at %v, want %v", got, inStep)
			}
			wantMetric(t, eu.relay, fmt.Sprint("weir_relay_in_step_timestamp_seconds ", float64(got.UnixMilli())/1000))
		})
	}
}

// Another region's name in a row can be any bytes, but a label must be UTF-8. All names without valid UTF-8 share a
// label.
func TestStrangeRegionsAreReported(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	w.run(time.Second)
	for _, region := range []string{"\xff", "\xfe", "us"} {
		if err := w.feed.Append(t.Context(), store.FeedRow{Stream: store.Stream{Region: region}, Sequence: 1, Writer: 1, Payload: []byte{1, 0, 0}}); err != nil {
			t.Fatal(err)
		}
	}
	w.run(time.Second)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(eu.relay.Collector())
	if n, err := testutil.GatherAndCount(registry, "weir_relay_lag_seconds"); n != 2 || err != nil {
		t.Errorf("lags of %d regions, want us and a strange one: %v", n, err)
	}
	if got := eu.relay.Figures().LagP99; len(got) != 2 {
		t.Errorf("lags of %v, want us and a strange one", got)
	}
}

// Figures counts that a relay finds its row's number taken.
func TestFiguresOfAFencedRelay(t *testing.T) {
	w, eu, _ := newPair(t)
	w.run(time.Second)
	rows := w.feed.Rows(store.Stream{Region: "eu"})
	next := store.FeedRow{Stream: store.Stream{Region: "eu"}, Sequence: rows[len(rows)-1].Sequence + 1, Writer: 99}
	if err := w.feed.Append(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	eu.accept(eu.cell("k", time.Hour), 50, 100)
	w.run(time.Second)
	if got := eu.relay.Figures().Fenced; got != 1 {
		t.Errorf("fenced %d times, want once", got)
	}
}
