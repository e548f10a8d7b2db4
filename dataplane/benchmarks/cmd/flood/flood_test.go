package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestAFloodLeavesMemoryBoundedAndTheBlockedBlocked(t *testing.T) {
	f := flood{identifiers: 20_000, entriesMax: 1000, limit: 100, workers: 2}
	r, err := f.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if broken := r.broken(bounds{heapMax: heapMaxOf(f.entriesMax), quantileMax: time.Minute}); len(broken) > 0 {
		t.Error(strings.Join(broken, "\n"))
	}
	// Each identifier beyond the table's 1,000 either takes the place of an idle one, whose count goes to the sketch, or
	// shares all four of its places there with such counts, and is decided by the sketch. If 19,000 counts are added to
	// four rows of 16,384 places, 1,190 meet only places that are in use (6 %).
	evicted, sketched := r.metrics["weir_evictions_total idle"], r.metrics["weir_table_full_total"]
	if evicted+sketched < 19_000 || sketched > 19_000/10 {
		t.Errorf("%v idle evictions, and %v new identifiers were decided by the sketch", evicted, sketched)
	}
	if r.decisions.TotalCount() != 20_000 || r.heapMax < r.liveMax || r.liveMax == 0 {
		t.Errorf("%d decisions, heap %d of which %d live", r.decisions.TotalCount(), r.heapMax, r.liveMax)
	}
	var out strings.Builder
	r.print(&out)
	if !strings.Contains(out.String(), "blocked      still denied") {
		t.Errorf("printed\n%s", out.String())
	}
}

func TestEveryBrokenBoundIsTold(t *testing.T) {
	good := func() report {
		r := report{entriesMax: 10, heapMax: 5, blockedAfter: true, metrics: map[string]float64{"weir_entries": 10}, decisions: newLatencies()}
		record(r.decisions, 20*time.Microsecond)
		return r
	}
	b := bounds{heapMax: 5, quantileMax: 50 * time.Microsecond}
	r := good()
	if broken := r.broken(b); len(broken) > 0 {
		t.Errorf("nothing is broken, yet %q", broken)
	}
	for name, spoil := range map[string]func(*report){
		"heap":    func(r *report) { r.heapMax = 6 },
		"p99.9":   func(r *report) { record(r.decisions, time.Millisecond) },
		"blocked": func(r *report) { r.blockedAfter = false },
		"entries": func(r *report) { r.metrics["weir_entries"] = 11 },
		"denials": func(r *report) { r.denied = 1 },
	} {
		r := good()
		spoil(&r)
		if broken := r.broken(b); len(broken) != 1 || !strings.Contains(broken[0], name) {
			t.Errorf("%s: told %q", name, broken)
		}
	}
}
