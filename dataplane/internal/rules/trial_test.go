package rules

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

func withTrial(version string, left, age time.Duration) store.SettingsRows {
	return store.SettingsRows{
		Version: version, TuningVersion: 3, TuningDocument: []byte(`{"floor":0.5,"fresh_for_ms":1000}`), Age: age,
		Trial: store.TrialRow{Number: 7, Document: []byte(`{"floor":0.25,"fresh_for_ms":2000}`), Below: tuning.TrialShares,
			Left: left},
	}
}

// wantTuning holds a node to the trial in force, 0 for the stored tuning.
func wantTuning(t *testing.T, r *Rules, number int64, floor float64, freshForMs int64) {
	t.Helper()
	s := r.InForce()
	if s.TrialNumber != number || s.Tuning.Floor != floor || s.FreshForMs != freshForMs || s.Version != 3 {
		t.Errorf("trial %d is in force (floor %g, fresh for %d ms) over version %d; want %d (%g, %d) over 3",
			s.TrialNumber, s.Tuning.Floor, s.FreshForMs, s.Version, number, floor, freshForMs)
	}
}

// A trial goes on while it is renewed, and its end needs no compilation: rows of the same version are the same
// snapshot.
func TestATrialIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &versioned{rows: withTrial("1", 30*time.Second, 0)}
		r := newRules(source, "a", nil)
		read := func() *Settings {
			t.Helper()
			if err := r.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r.InForce()
		}
		first := read()
		for range 10 {
			time.Sleep(20 * time.Second)
			if read() != first {
				t.Error("a renewal makes another snapshot")
			}
			wantTuning(t, r, 7, 0.25, 2000)
		}
		time.Sleep(30 * time.Second)
		r.endTrial()
		wantTuning(t, r, 0, 0.5, 1000)
		read() // renewed after it was over
		wantTuning(t, r, 7, 0.25, 2000)
		source.rows.Age = 25 * time.Second // an old copy makes it no shorter
		read()
		time.Sleep(20 * time.Second)
		r.endTrial()
		wantTuning(t, r, 7, 0.25, 2000)
		source.rows.Version, source.rows.Age, source.rows.Trial = "2", 0, store.TrialRow{} // it is withdrawn
		read()
		wantTuning(t, r, 0, 0.5, 1000)
	})
}

// Nodes try it by a share that their ids draw, so a wider share takes in all who tried it before.
func TestNodesTryATuningByTheirShare(t *testing.T) {
	const id = "node-1"
	for _, c := range []struct{ below, want int64 }{
		{0, 0}, {1, 0}, {tuning.TrialShare(id), 0}, {tuning.TrialShare(id) + 1, 7}, {tuning.TrialShares, 7},
	} {
		source := &versioned{rows: withTrial("1", time.Minute, 0)}
		source.rows.Trial.Below = c.below
		r := newRules(source, id, nil)
		if err := r.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.InForce().TrialNumber; got != c.want {
			t.Errorf("nodes below %d try it: %q runs %d, want %d", c.below, id, got, c.want)
		}
	}
}

// A document on trial that makes no sense is an error each time, and the stored tuning is in force.
func TestATrialThatCannotBeRead(t *testing.T) {
	source := &versioned{rows: withTrial("1", time.Minute, 0)}
	source.rows.Trial.Document = []byte(`{"floor":2}`)
	r := newRules(source, "a", nil)
	for range 2 {
		if err := r.Load(t.Context()); err == nil {
			t.Error("a floor of 2 is no error")
		}
		wantTuning(t, r, 0, 0.5, 1000)
	}
}
