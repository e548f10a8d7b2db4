package workload

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"
)

func TestEveryIdentifierHasTheSameLength(t *testing.T) {
	for _, i := range []int{0, 42, 999_999_999} {
		if n := len(Identifier(i)); n != IdentifierBytes {
			t.Errorf("identifier %d has %d bytes, not %d", i, n, IdentifierBytes)
		}
	}
}

func TestAllProcessesDrawTheSame(t *testing.T) {
	for name, draw := range map[string]func(n, identifiers int) []int32{"uniform": drawUniform, "zipf": drawZipf} {
		a, b := draw(10_000, 1000), draw(10_000, 1000)
		if !slices.Equal(a, b) {
			t.Errorf("%s: two draws differ", name)
		}
		if lowest, highest := slices.Min(a), slices.Max(a); lowest < 0 || highest >= 1000 || highest-lowest < 900 {
			t.Errorf("%s: draws of 1000 identifiers lie between %d and %d", name, lowest, highest)
		}
	}
}

func TestZipfPrefersAFewThatAreNotTheFirst(t *testing.T) {
	times := map[int32]int{}
	for _, i := range drawZipf(100_000, 1000) {
		times[i]++
	}
	var frequent int32
	for i, n := range times {
		if n > times[frequent] {
			frequent = i
		}
	}
	if times[frequent] < 10_000 || times[frequent] > 30_000 {
		t.Errorf("the most frequent of 1000 identifiers has %d of 100000 decisions; Zipf gives it about 17 %%", times[frequent])
	}
	if frequent == 0 {
		t.Error("the most frequent identifier is the one that was entered first")
	}
}

func TestEveryDecisionHasItsOwnCopyOfItsIdentifier(t *testing.T) {
	spelled := spell([]int32{7, 7})
	if spelled[0] != Identifier(7) || spelled[1] != Identifier(7) {
		t.Fatalf("identifier 7 twice is spelled %q", spelled)
	}
	if unsafe.StringData(spelled[0]) == unsafe.StringData(spelled[1]) {
		t.Error("both are the same string in memory, and compare equal by address")
	}
}

func TestDriveWalksTheSequenceInOrderAndBeginsAgain(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	sequence := spell(known(2 * turn))
	n, begun := 5*turn+3, 0
	var got []string
	_, wrong := drive(func() { begun++ }, func(identifier string) bool {
		got = append(got, identifier)
		return true
	}, sequence, n, true)
	if begun != 1 || wrong != 0 || len(got) != n {
		t.Fatalf("began %d times, made %d decisions, %d of them wrong; not once, %d and 0", begun, len(got), wrong, n)
	}
	for i, identifier := range got {
		if want := sequence[i%len(sequence)]; identifier != want {
			t.Fatalf("decision %d was about %s, not %s", i, identifier, want)
		}
	}
}

func TestDriveOnTwoProcessorsMakesEachDecisionOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var mu sync.Mutex
	times := map[string]int{}
	n := 3*turn + 1
	typical, wrong := drive(func() {}, func(identifier string) bool {
		mu.Lock()
		defer mu.Unlock()
		times[identifier]++
		return identifier == Identifier(5)
	}, spell(known(4*turn)), n, false)
	if len(times) != n || wrong != 1 {
		t.Errorf("%d identifiers were decided and %d decisions wrong, not %d and 1", len(times), wrong, n)
	}
	for identifier, n := range times {
		if n != 1 {
			t.Errorf("%s was decided %d times", identifier, n)
		}
	}
	if typical <= 0 {
		t.Errorf("a decision typically takes %v ns", typical)
	}
}

// A limiter that counts wrong must fail the comparison.
func TestCheckNoticesWhoCountsWrong(t *testing.T) {
	counting := func(key func(string) string, grants func(count, limit int64) bool) Limiter {
		return Limiter{Name: "wrong", New: func(limit int64) (Decide, func()) {
			counts := map[string]int64{}
			return func(identifier string) bool {
				counts[key(identifier)]++
				return grants(counts[key(identifier)], limit)
			}, func() {}
		}}
	}
	own := func(identifier string) string { return identifier }
	upTo := func(count, limit int64) bool { return count <= limit }
	if err := Check(counting(own, upTo)); err != nil {
		t.Errorf("a right one is said to be wrong: %v", err)
	}
	for name, l := range map[string]Limiter{
		"grants one too few":                 counting(own, func(count, limit int64) bool { return count < limit }),
		"grants one too many":                counting(own, func(count, limit int64) bool { return count <= limit+1 }),
		"counts all identifiers as one":      counting(func(string) string { return "" }, upTo),
		"loses count far below its limit":    counting(own, func(count, limit int64) bool { return count <= min(limit, 5000) }),
		"is a floor and denies all the same": {Floor: true, New: counting(own, upTo).New},
	} {
		if Check(l) == nil {
			t.Errorf("one that %s goes unnoticed", name)
		}
	}
}
