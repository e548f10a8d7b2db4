package relay_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func TestNewNamesTheFieldAtFault(t *testing.T) {
	w := newWorld(t, "eu")
	good := relay.Config{Region: "eu", Holder: "node", Origin: w.regions[0].origin, Feed: w.feed, Counts: w.counts}
	if _, err := relay.New(good); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*relay.Config){
		"region": func(c *relay.Config) { c.Region = strings.Repeat("x", store.RegionBytesMax+1) },
		"holder": func(c *relay.Config) { c.Holder = "" },
		"origin": func(c *relay.Config) { c.Origin = nil },
		"feed":   func(c *relay.Config) { c.Feed = nil },
		"counts": func(c *relay.Config) { c.Counts = nil },
	} {
		bad := good
		spoil(&bad)
		if _, err := relay.New(bad); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Counts are stored in the CountStore from the floor on, with each step, and when the limit is reached. Import returns
// them.
func TestCountsAreStoredInSteps(t *testing.T) {
	w, eu, _ := newPair(t)
	w.tuning.Floor, w.tuning.Step = 0.2, 0.1
	c := eu.cell("k", time.Hour)
	for _, step := range []struct{ cost, stored int64 }{
		{19, 0}, {1, 20}, {9, 20}, {1, 30}, {65, 95}, {4, 95}, {1, 100}, {5, 100}, {5, 110},
	} {
		eu.accept(c, step.cost, 100)
		w.run(6 * time.Second)
		if got := w.counts.Totals()[c]; got != step.stored {
			t.Errorf("of %d %d are stored, want %d", eu.accepted[c], got, step.stored)
		}
	}
}

// The CountStore may have coarser steps than the change feed.
func TestCountsAreStoredInCoarserSteps(t *testing.T) {
	w, eu, _ := newPair(t)
	w.tuning.StoreFloor, w.tuning.StoreSteps = relay.StoreFloor, relay.StoreSteps
	w.tuning.Floor, w.tuning.Step = 0.1, 0.01
	c := eu.cell("k", time.Hour)
	for _, step := range []struct{ cost, stored int64 }{{49, 0}, {1, 50}, {24, 50}, {1, 75}, {24, 75}, {1, 100}, {24, 100}, {1, 125}} {
		eu.accept(c, step.cost, 100)
		w.run(6 * time.Second)
		if got := w.counts.Totals()[c]; got != step.stored {
			t.Errorf("of %d %d are stored, want %d", eu.accepted[c], got, step.stored)
		}
	}
}

// With a floor and a step of 0, every growth is stored, however small a share of the limit it is.
func TestWithoutFloorAndStepEveryGrowthIsStored(t *testing.T) {
	w, eu, _ := newPair(t)
	w.tuning.Floor, w.tuning.Step = 0, 0
	c := eu.cell("k", time.Hour)
	for range 3 {
		eu.accept(c, 1, 1<<40)
		w.run(6 * time.Second)
		if got := w.counts.Totals()[c]; got != eu.accepted[c] {
			t.Errorf("of %d %d are stored", eu.accepted[c], got)
		}
	}
}

// Counts that could not be stored are stored later, even if they grow no more.
func TestCountsAreStoredOnceTheStoreIsBack(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	c := eu.cell("k", time.Hour)
	w.run(time.Second)
	w.counts.Faults.Fail(errDown)
	eu.accept(c, 100, 100)
	w.run(3 * time.Second)
	w.counts.Faults.Fail(nil)
	w.run(2 * time.Second)
	if got := w.counts.Totals()[c]; got != 100 {
		t.Errorf("%d of 100 are stored", got)
	}
}

// A row that the CountStore refuses delays no other. It is tried once, however much its count grows, and the change
// feed has the count all the same.
func TestARefusedCountHoldsUpNoOther(t *testing.T) {
	w, eu, us := newPair(t)
	tried := 0
	w.counts.Faults.RefuseRow(func(c store.Count) bool {
		if c.Cell.Identifier == "k7" {
			tried++
		}
		return c.Cell.Identifier == "k7"
	})
	grow := func() {
		for i := range 20 {
			eu.accept(eu.cell(fmt.Sprint("k", i), time.Hour), 40, 100)
		}
		w.run(3 * time.Second)
	}
	grow()
	once := tried
	grow()
	if got := len(w.counts.Totals()); got != 19 {
		t.Errorf("%d of 20 counts are stored, want 19", got)
	}
	if tried != once {
		t.Errorf("the row was tried %d times more", tried-once)
	}
	if f := eu.relay.Figures(); f.Refused != 1 {
		t.Errorf("%d counts are refused, want 1", f.Refused)
	}
	if got := us.total(eu.cell("k7", time.Hour)).Foreign; got != 80 {
		t.Errorf("us knows %d of 80", got)
	}
}

// Malformed cells of an origin, for example from another program, hide no other cell from other regions. They are
// acknowledged, counted, and logged once.
func TestMalformedCellsHideNoOthers(t *testing.T) {
	w, eu, _ := newPair(t)
	var log bytes.Buffer
	made, err := relay.New(relay.Config{Region: "eu", Holder: "first", Origin: eu.relayOrigin, Feed: w.feed, Counts: w.counts,
		Clock: w.clock, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	eu.relay = made
	w.run(time.Second)
	var good []window.Cell
	for i := range 20 {
		good = append(good, eu.cell(fmt.Sprint("k", i), time.Hour))
		bad := good[i]
		switch i % 4 {
		case 0:
			bad.Namespace = ""
		case 1:
			bad.Identifier = strings.Repeat("x", window.IdentifierBytesMax+1)
		case 2:
			bad.Duration = time.Millisecond
		case 3:
			bad.Sequence = 1 << 40 // the expiry does not fit into an int64
		}
		bad.Workspace = fmt.Sprint("bad", i)
		eu.accept(bad, 100, 100)
		delete(eu.accepted, bad) // not a cell that R1 applies to
		eu.accept(good[i], 100, 100)
		w.run(interval)
	}
	w.run(time.Second)
	w.wantKnown(good...)
	wantMetric(t, w.regions[1].relay, "weir_relay_unreadable_rows_total 0")
	if changes, err := eu.relayOrigin.Changes(t.Context(), 0, 1); err != nil || len(changes.Cells) > 0 {
		t.Errorf("left in the changes: %v, %v", changes.Cells, err)
	}
	if n := strings.Count(log.String(), "malformed"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// A row that another version wrote is left out, and the other rows are read.
func TestAnUnreadableRowIsLeftOut(t *testing.T) {
	w := newWorld(t, "eu", "us")
	w.run(time.Second)
	row := store.FeedRow{Stream: store.Stream{Region: "ap"}, Sequence: 1, Writer: 1, Payload: []byte{200, 1}}
	if err := w.feed.Append(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	c := w.regions[0].cell("k", time.Hour)
	w.regions[0].accept(c, 50, 100)
	w.run(2 * interval)
	w.wantKnown(c)
	wantMetric(t, w.regions[1].relay, "weir_relay_unreadable_rows_total 1")
}

func TestMetrics(t *testing.T) {
	w, eu, us := newPair(t)
	us.away = true
	wantMetric(t, eu.relay, `weir_relay_in_step_timestamp_seconds 0`)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 50, 100)
	w.run(time.Second)
	inStep := w.now
	w.feed.Faults.Fail(errDown)
	eu.accept(c, 20, 100)
	w.run(4 * time.Second)
	w.feed.Faults.Fail(nil)
	wantMetric(t, eu.relay, `weir_relay_lease_held{shard="0"} 1`, `weir_relay_cells{shard="0"} 1`,
		`weir_relay_unpublished_age_seconds{shard="0"} 3.8`, `weir_relay_feed_rows_total{direction="published"} 2`,
		`weir_relay_healed_total 1`, `weir_relay_stored_counts_total 1`,
		fmt.Sprint("weir_relay_in_step_timestamp_seconds ", float64(inStep.UnixMilli())/1000))
	us.away = false
	w.run(interval)
	wantMetric(t, us.relay, `weir_relay_lag_seconds{from="eu"} 6`, `weir_relay_feed_rows_total{direction="read"} 3`)
	us.away = true
	w.run(2 * time.Minute)
	if n := testutil.CollectAndCount(us.relay.Collector(), "weir_relay_lag_seconds"); n != 0 {
		t.Errorf("%d lags of reads that ended two minutes ago", n)
	}
	problems, err := testutil.CollectAndLint(eu.relay.Collector())
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// A total that may wait for another region is not late: its age counts from when that region began to use the cell.
func TestTheAgeOfWhatWaits(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 1, 100)
	w.run(interval)
	eu.accept(c, 1, 100)
	w.run(10 * time.Second)
	us.accept(c, 1, 100)
	for range 4 {
		wantMetric(t, eu.relay, `weir_relay_unpublished_age_seconds{shard="0"} 0`)
		w.run(interval)
	}
	w.wantKnown(c)
}

func wantMetric(t *testing.T, r *relay.Relay, lines ...string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels = fmt.Sprintf("{%s=%q}", l.GetName(), l.GetValue())
			}
			fmt.Fprintf(&all, "%s%s %v\n", f.GetName(), labels, m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount()))
		}
	}
	for _, line := range lines {
		if !strings.Contains(all.String(), line+"\n") {
			t.Errorf("no %s in\n%s", line, all.String())
		}
	}
}

// The region that reads a count measures how long it took from region to region: the count's age when its row was made,
// and the age of the row. Rows that a relay reads as it starts are not measured.
func TestConvergenceIsMeasured(t *testing.T) {
	w, eu, us := newPair(t)
	eu.accept(eu.cell("before", time.Hour), 50, 100)
	us.away = true
	w.run(time.Second)
	us.away = false
	w.run(time.Second)
	wantMetric(t, us.relay, "weir_relay_convergence_seconds 0")
	us.away = true
	eu.accept(eu.cell("k", time.Hour), 50, 100)
	w.run(2 * time.Second)
	us.away = false
	w.run(interval)
	wantMetric(t, us.relay, "weir_relay_convergence_seconds 1")
	problem := testutil.CollectAndCompare(us.relay.Collector(), strings.NewReader(convergenceOfTwoSeconds), "weir_relay_convergence_seconds")
	if problem != nil {
		t.Error(problem)
	}
}

const convergenceOfTwoSeconds = `
# HELP weir_relay_convergence_seconds Time from when another region's relay found a count to be sent until this region had read it, for the oldest count of each row. Time in which the row could not be stored is left out.
# TYPE weir_relay_convergence_seconds histogram
weir_relay_convergence_seconds_bucket{le="0.1"} 0
weir_relay_convergence_seconds_bucket{le="0.2"} 0
weir_relay_convergence_seconds_bucket{le="0.3"} 0
weir_relay_convergence_seconds_bucket{le="0.4"} 0
weir_relay_convergence_seconds_bucket{le="0.5"} 0
weir_relay_convergence_seconds_bucket{le="0.6"} 0
weir_relay_convergence_seconds_bucket{le="0.8"} 0
weir_relay_convergence_seconds_bucket{le="1"} 0
weir_relay_convergence_seconds_bucket{le="1.5"} 0
weir_relay_convergence_seconds_bucket{le="2"} 0
weir_relay_convergence_seconds_bucket{le="3"} 1
weir_relay_convergence_seconds_bucket{le="5"} 1
weir_relay_convergence_seconds_bucket{le="10"} 1
weir_relay_convergence_seconds_bucket{le="30"} 1
weir_relay_convergence_seconds_bucket{le="60"} 1
weir_relay_convergence_seconds_bucket{le="+Inf"} 1
weir_relay_convergence_seconds_sum 2.001
weir_relay_convergence_seconds_count 1
`

// Figures counts an epoch change if an origin was emptied, but not for the first epoch that the relay finds.
func TestEpochChangesAreCounted(t *testing.T) {
	w, eu, _ := newPair(t)
	w.run(time.Second)
	wantMetric(t, eu.relay, "weir_relay_epoch_changes_total 0")
	eu.origin.Wipe()
	w.seen["eu"] = nil
	w.run(time.Second)
	wantMetric(t, eu.relay, "weir_relay_epoch_changes_total 1")
}
