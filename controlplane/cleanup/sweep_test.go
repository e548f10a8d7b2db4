package cleanup

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A transcript of sweeps: the size, result and duration of each batch, and how the sweep ended.
func TestSweep(t *testing.T) {
	type batch struct {
		asked   int
		deleted int64
		took    time.Duration
	}
	const ms = time.Millisecond
	limits := SweepLimits{BatchRowsMax: 1000, BatchesMax: 6, BatchSlow: 500 * ms, RunTimeMax: 3 * time.Second}
	for name, tc := range map[string]struct {
		batches []batch
		rows    int64
		stopped StoppedBy
		atOnce  bool
	}{
		"nothing expired: one empty batch": {
			batches: []batch{{1000, 0, ms}},
		},
		"stops on a short batch": {
			batches: []batch{{1000, 1000, ms}, {1000, 999, ms}},
			rows:    1999,
		},
		"an exact multiple needs an empty batch to see the end": {
			batches: []batch{{1000, 1000, ms}, {1000, 0, ms}},
			rows:    1000,
		},
		"at most BatchesMax batches, then the next run at once": {
			batches: []batch{{1000, 1000, ms}, {1000, 1000, ms}, {1000, 1000, ms}, {1000, 1000, ms}, {1000, 1000, ms}, {1000, 1000, ms}},
			rows:    6000, stopped: StoppedByBatches, atOnce: true,
		},
		"a short last batch is the end, not the cap": {
			batches: []batch{{1000, 1000, ms}, {1000, 1000, ms}, {1000, 1000, ms}, {1000, 1000, ms}, {1000, 1000, ms}, {1000, 10, ms}},
			rows:    5010,
		},
		"no more batches after RunTimeMax": {
			batches: []batch{{1000, 1000, 400 * ms}, {1000, 1000, 2600 * ms}},
			rows:    2000, stopped: StoppedByTime, atOnce: true,
		},
		"a slow batch halves the next, a quick one doubles it again": {
			batches: []batch{{1000, 1000, 501 * ms}, {500, 500, 300 * ms}, {500, 500, 249 * ms}, {1000, 1000, ms}, {1000, 4, ms}},
			rows:    3004,
		},
		"slow at the smallest batch: stops, and does not come back at once": {
			batches: []batch{{1000, 1000, 501 * ms}, {500, 500, 501 * ms}, {250, 250, 501 * ms}, {125, 125, 501 * ms}, {100, 100, 501 * ms}},
			rows:    1975, stopped: StoppedBySlow,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSweep(limits)
			for i, b := range tc.batches {
				rows, ok := s.Next()
				if !ok || rows != b.asked {
					t.Fatalf("batch %d: Next() = %d, %v; want %d", i+1, rows, ok, b.asked)
				}
				s.Done(Batch{Rows: b.deleted, Took: b.took})
			}
			if _, ok := s.Next(); ok {
				t.Fatal("the sweep goes on")
			}
			if s.Rows() != tc.rows || s.Batches() != len(tc.batches) || s.StoppedBy() != tc.stopped || s.StoppedBy().AtOnce() != tc.atOnce {
				t.Errorf("rows %d, batches %d, stopped by %q, at once %v; want %d, %d, %q, %v",
					s.Rows(), s.Batches(), s.StoppedBy(), s.StoppedBy().AtOnce(), tc.rows, len(tc.batches), tc.stopped, tc.atOnce)
			}
		})
	}
}

// "No statement deletes more than BatchRowsMax rows and no run makes more than BatchesMax of them, or takes much longer
// than RunTimeMax", for any database.
func TestSweepKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := SweepLimits{
			BatchRowsMax: rapid.IntRange(1, 10_000).Draw(t, "batch rows"),
			BatchesMax:   rapid.IntRange(1, 300).Draw(t, "batches"),
			BatchSlow:    time.Duration(rapid.IntRange(1, 1000).Draw(t, "slow ms")) * time.Millisecond,
			RunTimeMax:   time.Duration(rapid.IntRange(1, 60).Draw(t, "run s")) * time.Second,
		}
		if err := limits.Validate(); err != nil {
			t.Fatal(err)
		}
		left := rapid.Int64Range(0, 1_000_000).Draw(t, "expired rows")
		s := NewSweep(limits)
		var deleted int64
		var took, last time.Duration
		batches := 0
		for rows, ok := s.Next(); ok; rows, ok = s.Next() {
			if rows < 1 || rows > limits.BatchRowsMax {
				t.Fatalf("a batch of %d rows", rows)
			}
			n := min(int64(rows), left)
			last = time.Duration(rapid.IntRange(0, 2000).Draw(t, "took ms")) * time.Millisecond
			s.Done(Batch{Rows: n, Took: last})
			left, deleted, took = left-n, deleted+n, took+last
			batches++
		}
		if batches > limits.BatchesMax || took-last >= limits.RunTimeMax {
			t.Fatalf("%d batches of %d, %v of %v", batches, limits.BatchesMax, took, limits.RunTimeMax)
		}
		if s.Rows() != deleted || s.Batches() != batches {
			t.Fatalf("counted %d rows in %d batches, did %d in %d", s.Rows(), s.Batches(), deleted, batches)
		}
		if left > 0 && s.StoppedBy() == StoppedByNothing {
			t.Fatalf("%d rows left and nothing said", left)
		}
	})
}

func TestSweepLimitsValidate(t *testing.T) {
	for field, change := range map[string]func(*SweepLimits){
		"batch rows is 0 (1 to 50000)":       func(l *SweepLimits) { l.BatchRowsMax = 0 },
		"batch rows is 50001 (1 to 50000)":   func(l *SweepLimits) { l.BatchRowsMax = 50_001 },
		"batches is 0 (1 to 10000)":          func(l *SweepLimits) { l.BatchesMax = 0 },
		"batch slow is 0s (1ms to 1m0s)":     func(l *SweepLimits) { l.BatchSlow = 0 },
		"run time is 999ms (1s to 10m0s)":    func(l *SweepLimits) { l.RunTimeMax = 999 * time.Millisecond },
		"run time is 10m0.001s (1s to 10m0s": func(l *SweepLimits) { l.RunTimeMax = 10*time.Minute + time.Millisecond },
	} {
		l := DefaultSweepLimits()
		change(&l)
		wantInvalid(t, l.Validate(), field)
	}
	if err := DefaultSweepLimits().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
