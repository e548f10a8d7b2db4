package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/planted"
	"github.com/weirhq/weir/dataplane/sim/hunt"
)

// The tests play a fixed number of seeds, and not for a fixed time. So a commit that passes on a machine passes on all
// machines.
const (
	shortSeeds = 10
	longSeeds  = 250 // about six minutes of two cores
)

// TestMain lets a machine start its workers: they are processes of the program that it runs in.
func TestMain(m *testing.M) {
	beWorker()
	code := m.Run()
	if built, err := shared(); err == nil {
		built.close()
	}
	os.Exit(code)
}

// shared is the machine of the module as it is. It takes some seconds to build, so tests share it. Histories share
// nothing: each runs in an instance of its own.
var shared = sync.OnceValues(func() (*machine, error) {
	m, err := newMachine(context.Background(), "../..", nil)
	if err == nil {
		m.within = 5 * time.Minute // other tests run at the same time
	}
	return m, err
})

func machineOf(t *testing.T) *machine {
	t.Helper()
	m, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// WEIR_LONG plays longSeeds from the seed WEIR_HUNT_FROM on, which make test takes from the commit.
func TestNoSeedBreaksAnInvariant(t *testing.T) {
	var out bytes.Buffer
	h := hunter{machine: machineOf(t), out: &out, from: 1, seeds: shortSeeds}
	if os.Getenv("WEIR_LONG") != "" {
		h.seeds = longSeeds
	}
	if text := os.Getenv("WEIR_HUNT_FROM"); text != "" {
		from, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal("WEIR_HUNT_FROM:", err)
		}
		h.from = from
	}
	if err := h.run(t.Context(), 2); err != nil {
		t.Errorf("%v:\n%s", err, out.Bytes())
	}
	t.Log(out.String())
}

// Seeds that broke an invariant once are played in each run. Which execution a seed has moves with the code, so each
// defect that they found also has a history without chance in package sim/hunt.
func TestSeedsThatBrokeAnInvariantHold(t *testing.T) {
	m := machineOf(t)
	for name, seed := range map[string]uint64{
		"other regions know the cost of a batch before its caller":      3602802290,
		"a call about a reservation begins before it is asked for":      31627,
		"a retry at a node that has just refused has its reservation":   20475,
		"a node whose clock is set back knows less of an earlier cell":  948912390,
		"a first cost is refused after the new epoch was read":          30761,
		"a relay loses its lease before it has loaded":                  30205,
		"a node decides before it knows its origin's clock":             31171,
		"a reservation in two shards is stated after an outage":         363802356,
		"a claim whose caller left is counted once by a precise window": 3347038389,
		"a refund takes the cost of a call that has no answer yet":      3001913227,
		"a cost is refunded at two nodes":                               205410689,
		"a higher limit is decided later, and answered earlier":         759002655,
		"an estimated key rests after requests during its sync":         362864013,
		"a node that reserves by itself sends the cost first":           2977956918,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := m.play(t.Context(), seed, nil)
			if err != nil || len(r.Violations) > 0 {
				t.Errorf("seed %d: %v, %v", seed, r.Violations, err)
			}
		})
	}
}

// The pages name the number of seeds that the tests play.
func TestThePagesNameTheNumberOfSeeds(t *testing.T) {
	for _, page := range []string{"README.md", "../../README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("`make test` plays %d seeds", longSeeds); !strings.Contains(string(text), want) {
			t.Errorf("%s does not say that %s", page, want)
		}
	}
}

func TestOneSeedHasOneExecution(t *testing.T) {
	var out bytes.Buffer
	h := hunter{machine: machineOf(t), out: &out, from: 1, seeds: 6, twice: true}
	if err := h.run(t.Context(), 2); err != nil {
		t.Errorf("%v:\n%s", err, out.Bytes())
	}
}

// Hashes are listed by seed, so that the lists of two builds can be compared.
func TestHashesAreListedInOrder(t *testing.T) {
	var all tally
	for _, r := range []hunt.Result{{Seed: 12, Hash: "c"}, {Seed: 2, Hash: "a"}, {Seed: 3, Hash: "b"}} {
		all.add(&r)
	}
	if list := string(all.hashList()); list != "2 a\n3 b\n12 c\n" {
		t.Errorf("listed as %q", list)
	}
}

func TestSeedsDiffer(t *testing.T) {
	m := machineOf(t)
	hashes := make(map[string]bool)
	for seed := range uint64(3) {
		r, err := m.play(t.Context(), seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		hashes[r.Hash] = true
	}
	if len(hashes) != 3 {
		t.Errorf("%d hashes of 3 seeds", len(hashes))
	}
}

func TestAPlanShrinksToTheStepsThatMatter(t *testing.T) {
	tries := 0
	left := shrink(100, func(left hunt.Set) bool {
		tries++
		return !left[3] && !left[70] && !left[71]
	})
	if got := left.String(); got != "0-2,4-69,72-99" {
		t.Errorf("left out %s", got)
	}
	if tries > 100 {
		t.Errorf("%d tries", tries)
	}
}

func TestAHuntOfNoEndIsRefused(t *testing.T) {
	c := cli{Seeds: 0}
	if err := c.run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--for") {
		t.Errorf("%v", err)
	}
}

func TestACancelledHuntEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	h := hunter{machine: &machine{}, out: &out, seeds: 5}
	if err := h.run(ctx, 1); !errors.Is(err, context.Canceled) || !strings.Contains(out.String(), "0 played") {
		t.Errorf("%v, %s", err, out.Bytes())
	}
}

func TestSetsOfSteps(t *testing.T) {
	for _, text := range []string{"", "0", "3,7-9", "0-2,4-69,72-99"} {
		s, err := hunt.ParseSet(text)
		if err != nil || s.String() != text {
			t.Errorf("%q is %q (%v)", text, s, err)
		}
	}
	for _, text := range []string{"x", "3-1", "1,,2", "-1", "1-", fmt.Sprint(1 << 40)} {
		if _, err := hunt.ParseSet(text); !errors.Is(err, hunt.ErrSet) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPlansAreOfTheirSeedAlone(t *testing.T) {
	for seed := range uint64(50) {
		a, b := hunt.Draw(seed), hunt.Draw(seed)
		if !slices.Equal(a.Steps, b.Steps) {
			t.Fatal(seed)
		}
		for i := 1; i < len(a.Steps); i++ {
			if a.Steps[i].At < a.Steps[i-1].At {
				t.Fatalf("seed %d: step %d is before the one before it", seed, i)
			}
		}
	}
}

func TestATallyCountsFaultsByKind(t *testing.T) {
	var counted tally
	counted.add(&hunt.Result{Faults: map[hunt.Verb]int{hunt.Wipe: 1, hunt.Cut: 2}})
	counted.add(&hunt.Result{Faults: map[hunt.Verb]int{hunt.Kill: 1, hunt.Cut: 1}})
	if sum, kinds := counted.kinds(); sum != 5 || kinds != "3 cut, 1 kill, 1 wipe" {
		t.Errorf("%d faults: %s", sum, kinds)
	}
}

// A history that dies leaves no record. Its smallest history is still found, because it dies in the same way.
func TestAHistoryThatDiesIsShrunk(t *testing.T) {
	bug := planted.Bug{
		Name: "dies", File: "dataplane/sim/hunt/play.go",
		Hunks: []planted.Hunk{{Before: "\t\tw.callers.peek(n.life.Load(), s)\n", After: "\t\tpanic(\"peeked\")\n"}},
	}
	m, err := newMachine(t.Context(), "../..", bug.Overlay)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	m.within = 5 * time.Minute
	seed := uint64(1)
	for peeks(hunt.Draw(seed)) < 2 {
		seed++
	}
	var out bytes.Buffer
	h := hunter{machine: m, out: &out, from: seed, seeds: 1}
	if err := h.run(t.Context(), 1); !errors.Is(err, errBroken) {
		t.Fatalf("%v:\n%s", err, out.Bytes())
	}
	for _, want := range []string{"panic: peeked", "\n1 of ", fmt.Sprintf("--seed %d --without ", seed), " peek k"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.Bytes())
		}
	}
}

func peeks(p hunt.Plan) (n int) {
	for _, s := range p.Steps {
		if s.Do == hunt.Peek {
			n++
		}
	}
	return n
}

func TestDeathsOfAKind(t *testing.T) {
	for text, kind := range map[string]string{
		"exit\npanic: runtime error: index out of range [7] with length 3\n": "panic: runtime error: index out of range [",
		"exit\nfatal error: runtime: out of memory\n\nstack":                 "fatal error: runtime: out of memory",
		"panic: deadlock: main bubble goroutine has exited\ngoroutine 1":     "panic: deadlock: main bubble goroutine has exited",
		"": "unknown",
	} {
		if got := deathOf(text).kind; got != kind {
			t.Errorf("%q is of kind %q, want %q", text, got, kind)
		}
	}
}

func TestASeedOfWhichNothingIsLeftOutIsPlayedAgain(t *testing.T) {
	for want, left := range map[string]hunt.Set{
		"weir-hunt --seed 7": nil, "weir-hunt --seed 7 --without 1-2": {1: true, 2: true},
	} {
		if got := replay(7, left); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
