package sim

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulate runs a scenario in the test's bubble.
func simulate(t *testing.T, s Scenario, o Options) (r Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = Simulate(s, o); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

func lookup(t *testing.T, name string) Scenario {
	t.Helper()
	s, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A report has the fields that programs rely on, with these names.
func TestReportHasItsFields(t *testing.T) {
	r := simulate(t, lookup(t, "steady"), Options{Seed: 1, Duration: 2 * time.Second})
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		"scenario", "seed", "tuning", "simulated", "admitted_over_limit", `convergence_delay_ms":{"p50`, `"p99`, "mysql_rows_read_per_s",
		"mysql_rows_written_per_s", "redis_commands_per_s", "origin_reads_per_tick", "origin_increments_per_tick", "lost_cost", "bytes_per_key", `"violations":[]`,
	} {
		if !strings.Contains(string(text), field) {
			t.Errorf("no %s in %s", field, text)
		}
	}
}

// The same seed gives the same run, to the last digit, and another seed gives another run.
//
//weir:unraced
func TestASeedRepeats(t *testing.T) {
	for _, name := range []string{"steady", "twonodes", "crash"} {
		run := func(seed uint64) string {
			text, err := json.Marshal(simulate(t, lookup(t, name), Options{Seed: seed, Duration: 15 * time.Second}))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		first := run(1)
		if again := run(1); again != first {
			t.Errorf("%s: the same seed, two runs:\n%s\n%s", name, first, again)
		}
		if other := strings.Replace(run(2), `"seed":2`, `"seed":1`, 1); other == first {
			t.Errorf("%s: another seed changes nothing", name)
		}
	}
}
