package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

const printed = `goos: linux
cpu: Some Processor
BenchmarkAllow/hot/x-time-rate           	  500000	        99.5 ns/op	        90.5 typical-ns/op	       0 B/op	       2 allocs/op
BenchmarkAllow/hot/x-time-rate-2         	  500000	        80.0 ns/op	         0.5 %wrong	        41.0 typical-ns/op	       8 B/op	       1 allocs/op
PASS
`

func TestParseReadsFiguresByUnit(t *testing.T) {
	samples, cpu, err := parse(strings.NewReader(printed))
	if err != nil || cpu != "Some Processor" || len(samples) != 2 {
		t.Fatalf("got %v of %q, %v", samples, cpu, err)
	}
	one, two := samples[0], samples[1]
	if one.cpus != 1 || one.figures["ns/op"] != 99.5 || one.figures["allocs/op"] != 2 {
		t.Errorf("the line for one CPU was read as %v", one)
	}
	if two.cpus != 2 || two.figures[workload.UnitWrong] != 0.5 || two.figures["B/op"] != 8 {
		t.Errorf("the line for two CPUs was read as %v", two)
	}
	if _, _, err := parse(strings.NewReader("BenchmarkAllow/a 1 fast ns/op\n")); err == nil {
		t.Error("a figure that is no number is no error")
	}
}

// On one CPU the typical decision counts, on two the mean, and there only if both were at work.
func TestSamplesThatWereDisturbedAreLeftOut(t *testing.T) {
	of := func(cpus int, mean, typical float64) sample {
		return sample{cpus, map[string]float64{"ns/op": mean, workload.UnitTypical: typical}}
	}
	samples := []sample{of(1, 500, 100), of(1, 130, 110), of(1, 120, 90), of(2, 100, 50), of(2, 60, 58)}
	if !undisturbed(samples) || undisturbed(samples[:4]) {
		t.Error("two CPUs were at work in the last sample only, and that is not what is said")
	}
	r := results{}
	e := entry{Case: workload.Hot, limiter: weir}
	r.add(e, samples)
	r.add(e, samples[:4])
	if one, _, ok := r.ns(what{"hot", weir, 1}); !ok || one != 90 {
		t.Errorf("on one CPU %v, not 90", one)
	}
	rounds := r[what{"hot", weir, 2}]
	if len(rounds) != 2 || rounds[0].ns != 60 || rounds[0].disturbed || rounds[1].ns != 100 || !rounds[1].disturbed {
		t.Errorf("on two CPUs %v, not 60, then 100 disturbed", rounds)
	}
}

// measured gives every round's nanoseconds.
func (r results) measured(in, limiter string, cpus int, allocs float64, ns ...float64) {
	for _, n := range ns {
		id := what{in, limiter, cpus}
		r[id] = append(r[id], round{ns: n, figures: map[string]float64{"allocs/op": allocs, workload.UnitMemory: 150}})
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	r := results{}
	r.measured("hot", weir, 1, 0, 50, 100, 200)
	r.measured("hot", "go-limiter", 1, 0, 100, 200, 400)
	r.measured("hot", "ulule", 1, 0, 300, 80, 900)
	if ratio, ok := r.ratio(what{"hot", weir, 1}, what{"hot", "go-limiter", 1}); !ok || ratio != 0.5 {
		t.Errorf("ratio %v, not 0.5 as in every round", ratio)
	}
	if best, _ := r.bestRival("hot", 1); best != "go-limiter" {
		t.Errorf("best rival %q", best)
	}
	if _, ok := r.bestRival("hot", 2); ok {
		t.Error("there is a best rival where none was measured")
	}
}

func TestBarsPassMissOrWereNotMeasured(t *testing.T) {
	r := results{}
	r.measured("hot", weir, 1, 0, 100)
	r.measured("hot", "go-limiter", 1, 0, 110)
	r.measured("hot", "floor", 1, 0, 80)
	r.measured("zipf1m", weir, 1, 0, 300)
	r.measured("batch4", weir, 1, 1, 400)
	r.measured("denied", weir, 2, 0, 50, 50)
	r[what{"denied", weir, 2}][0].wrong = 0.1 // in a single round
	got := map[string]string{}
	for _, b := range r.bars() {
		got[b.text] = b.verdict()
	}
	for text, want := range map[string]string{
		"hot / go-limiter's, 1 CPU":            "**miss**", // 0.91
		"hot / floor, 1 CPU":                   "pass",     // 1.25
		"hot / floor, 2 CPU":                   "not measured",
		"batch4 / hot, 1 CPU":                  "pass",
		"allocations a decision, hot":          "pass",
		"allocations a decision, batch4":       "**miss**",
		"% of decisions wrong, denied":         "**miss**",
		"% of decisions wrong, hot":            "pass",
		"bytes an identifier, besides its own": "pass",
		"uniform100k / best rival's, 1 CPU":    "not measured",
	} {
		if got[text] != want {
			t.Errorf("%s: %q, not %q", text, got[text], want)
		}
	}
}

func TestEverybodyInACaseGoesFirstInSomeRound(t *testing.T) {
	all := everything()
	for _, c := range workload.Cases {
		limiters := map[string]bool{}
		first := map[string]bool{}
		for n := range 20 {
			turned := rotated(all, n)
			if len(turned) != len(all) {
				t.Fatalf("%d of %d entries are left", len(turned), len(all))
			}
			at := slices.IndexFunc(turned, func(e entry) bool { return e.Name == c.Name })
			first[turned[at].limiter] = true
		}
		for _, e := range all {
			if e.Name == c.Name {
				limiters[e.limiter] = true
			}
		}
		if len(first) != len(limiters) {
			t.Errorf("%s: %d of %d limiters go first", c.Name, len(first), len(limiters))
		}
	}
}

func TestSelectedNeedsAMatch(t *testing.T) {
	if got, err := selected("^hot$", "^(weir|floor)$"); err != nil || len(got) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"^nobody$", "("} {
		if _, err := selected(".", bad); err == nil {
			t.Errorf("-limiters %q is no error", bad)
		}
	}
}

func TestPrintMarksDisturbedFiguresAndHolds(t *testing.T) {
	r := results{}
	r.measured("hot", weir, 1, 0, 61)
	r[what{"hot", weir, 2}] = []round{{ns: 70, disturbed: true}}
	var out strings.Builder
	r.print(&out)
	if !strings.Contains(out.String(), "| weir | 61 / ~70 | – |") || !strings.Contains(out.String(), "~ the machine") {
		t.Errorf("printed\n%s", out.String())
	}
	results{}.print(io.Discard) // nothing measured: nothing to divide by
}
