package dataplane

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/latency"
	"github.com/weirhq/weir/dataplane/memstore"
)

func measured(t *testing.T, clock func() time.Time) *Limiter {
	t.Helper()
	l, err := New(Config{Clock: clock, Region: "eu", NodeID: "a", Settings: memstore.NewCounts(memstore.CountsOptions{})})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *Limiter) takes(times int, source Source, took time.Duration) {
	for range times {
		l.engine.stats.latency.Observe(source == SourceLocal, took)
	}
}

func wantP99(t *testing.T, what string, l *Limiter, leastUs, mostUs float64) {
	t.Helper()
	if us := l.reports.figures().DecisionP99Us; us < leastUs || us > mostUs {
		t.Errorf("%s: %v µs, want %v to %v", what, us, leastUs, mostUs)
	}
}

// A heartbeat's figure is the 99th percentile of decisions from memory, to within its bucket.
func TestHeartbeatsReportTheLatencyOfDecisions(t *testing.T) {
	l := measured(t, nil)
	l.takes(99, SourceLocal, 1500*time.Nanosecond)
	wantP99(t, "99 samples are too few", l, 0, 0)
	for _, waited := range []Source{SourceOrigin, SourceDegraded, SourceDegradedClosed} {
		l.takes(100, waited, 40*time.Millisecond)
	}
	wantP99(t, "decisions that wanted the origin are no part", l, 0, 0)
	l.takes(886, SourceLocal, 1500*time.Nanosecond)
	wantP99(t, "985 of 1 to 2 µs", l, 1.9, 2)
	l.takes(15, SourceLocal, 300*time.Microsecond)
	wantP99(t, "the 990th of 1,000, which is the 5th of 15 between 100 and 500 µs", l, 233, 234)
	l.takes(1000, SourceLocal, 3*time.Second)
	wantP99(t, "above the last bound", l, 100_000, 100_000)
}

// Samples count for at least half a minute and at most a minute, while heartbeats are sent.
func TestOldLatenciesAreForgotten(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	l := measured(t, func() time.Time { return now })
	beat := func(after time.Duration) {
		t.Helper()
		now = now.Add(after)
		if err := l.reports.beat(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	beat(25 * time.Second)
	l.takes(200, SourceLocal, 8*time.Millisecond)
	beat(5 * time.Second)
	wantP99(t, "after 5 s", l, 5000, 10_000)
	beat(25 * time.Second)
	wantP99(t, "after 30 s", l, 5000, 10_000)
	l.takes(200, SourceLocal, 1500*time.Nanosecond)
	wantP99(t, "beside newer ones", l, 5000, 10_000)
	beat(5 * time.Second)
	wantP99(t, "newer ones alone", l, 1.9, 2)
	beat(5 * time.Minute)
	beat(5 * time.Minute)
	wantP99(t, "nothing decided since", l, 0, 0)
}

// The figure comes from traffic alone; no decision is made only to measure it.
func TestLatencyIsThatOfRequests(t *testing.T) {
	l := measured(t, nil)
	r := Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 1 << 40, Duration: time.Minute}
	const decisions = (2*latency.SamplesMin + stripes) * sampleEvery // a stack that moves leaves a remainder on a stripe
	for range decisions {
		l.Allow(t.Context(), r)
	}
	if h := l.Health(); h.DecisionP99 <= 0 || h.Allowed != decisions {
		t.Errorf("%+v", h)
	}
}
