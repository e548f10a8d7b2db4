package dataplane

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
)

// trialSource is a source whose rows are read at a moment, and whose answers can fail or hang.
type trialSource struct {
	rows     store.SettingsRows
	fails    error
	hangs    bool
	storedAt time.Time // rows are a copy stored then, at their age; zero: their age never changes
}

func (s *trialSource) Settings(ctx context.Context, _ string) (store.SettingsRows, error) {
	if s.hangs {
		<-ctx.Done()
		return store.SettingsRows{}, ctx.Err()
	}
	rows := s.rows
	if !s.storedAt.IsZero() {
		rows.Age += time.Since(s.storedAt)
	}
	return rows, s.fails
}

func (*trialSource) Heartbeat(context.Context, ...heartbeat.Heartbeat) error { return nil }

func withTrial(version string, left, age time.Duration) store.SettingsRows {
	return store.SettingsRows{
		Version: version, TuningVersion: 3, TuningDocument: []byte(`{"floor":0.5,"fresh_for_ms":1000}`), Age: age,
		Trial: store.TrialRow{Number: 7, Document: []byte(`{"floor":0.25,"fresh_for_ms":2000}`), Below: tuning.TrialShares,
			Left: left},
	}
}

func newTrialLimiter(t *testing.T, source store.Settings, nodeID string) *Limiter {
	t.Helper()
	l, err := New(Config{Region: "eu", NodeID: nodeID, Settings: source})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantTuning checks the trial in force on a node, 0 for the stored tuning.
func wantTuning(t *testing.T, l *Limiter, number int64, floor float64, freshForMs int64) {
	t.Helper()
	s := l.engine.rules.InForce()
	if s.TrialNumber != number || s.Tuning.Floor != floor || s.FreshForMs != freshForMs || s.Version != 3 {
		t.Errorf("trial %d is in force (floor %g, fresh for %d ms) over version %d; want %d (%g, %d) over 3",
			s.TrialNumber, s.Tuning.Floor, s.FreshForMs, s.Version, number, floor, freshForMs)
	}
	if h := l.reports.figures(); h.Trial != number || h.TuningHash != s.Tuning.Hash() || h.TuningHash == "" {
		t.Errorf("the node reports trial %d and tuning %q, and runs %d, %q", h.Trial, h.TuningHash, number, s.Tuning.Hash())
	}
}

// A trial that is not renewed ends at its time, although settings cannot be read: they hang, fail, or come from a
// copy that grows old. The time is steady time, and the copy's age is subtracted.
func TestATrialEndsByItself(t *testing.T) {
	for name, dies := range map[string]func(*trialSource){
		"the store hangs": func(s *trialSource) { s.hangs = true },
		"the store fails": func(s *trialSource) { s.fails = errors.New("gone") },
		"the relay stops": func(s *trialSource) { s.storedAt = time.Now() },
		"nothing renews it": func(s *trialSource) {
			s.rows.Trial.Left, s.rows.Age = 20*time.Second, 20*time.Second
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &trialSource{rows: withTrial("1", 30*time.Second, 10*time.Second)}
				l := newTrialLimiter(t, source, "a")
				if err := l.RefreshSettings(t.Context()); err != nil {
					t.Fatal(err)
				}
				dies(source)
				if err := l.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer stopNow(l)
				time.Sleep(19 * time.Second)
				wantTuning(t, l, 7, 0.25, 2000)
				time.Sleep(time.Second + 10*time.Millisecond)
				wantTuning(t, l, 0, 0.5, 1000)
				time.Sleep(80 * time.Second)
				wantTuning(t, l, 0, 0.5, 1000)
			})
		})
	}
}

func stopNow(l *Limiter) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Stop(ctx) // nothing is unsent
}

// countedSource counts reads and heartbeats.
type countedSource struct {
	mu sync.Mutex // guards the other fields
	trialSource
	reads, beats int
}

// counted returns the reads and heartbeats so far.
func (s *countedSource) counted() (reads, beats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.beats
}

func (s *countedSource) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.trialSource.Settings(ctx, region)
}

func (s *countedSource) Heartbeat(context.Context, ...heartbeat.Heartbeat) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats++
	return nil
}

// A trial of a longer settings interval ends with its lease, and so does the interval: the node reads its settings
// and sends heartbeats at the stored tuning's interval. While the trial is in force, heartbeats arrive within the
// time for which they count, whatever interval an earlier build has stored.
func TestTheIntervalOfATrialEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &countedSource{trialSource: trialSource{rows: store.SettingsRows{Version: "1", TuningVersion: 3,
			TuningDocument: []byte(`{"settings_interval_ms":5000}`),
			Trial: store.TrialRow{Number: 7, Document: []byte(`{"settings_interval_ms":600000}`), Below: tuning.TrialShares,
				Left: time.Minute}}}}
		l := newTrialLimiter(t, source, "a")
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer stopNow(l)
		time.Sleep(time.Second)
		if s := l.engine.rules.InForce(); s.TrialNumber != 7 {
			t.Fatalf("trial %d is in force", s.TrialNumber)
		}
		_, before := source.counted()
		source.mu.Lock()
		source.rows.Trial = store.TrialRow{}
		source.fails = errors.New("gone") // so that only the lease can end the trial
		source.mu.Unlock()
		time.Sleep(59*time.Second + 10*time.Millisecond)
		reads, beats := source.counted()
		if s := l.engine.rules.InForce(); s.TrialNumber != 0 || beats-before < 2 {
			t.Fatalf("after the lease trial %d is in force, and %d heartbeats were sent in it", s.TrialNumber, beats-before)
		}
		time.Sleep(time.Minute)
		readsAfter, beatsAfter := source.counted()
		if readsAfter-reads < 11 || beatsAfter-beats < 11 {
			t.Errorf("in the minute after the trial: %d readings and %d heartbeats, at an interval of 5 s",
				readsAfter-reads, beatsAfter-beats)
		}
	})
}
