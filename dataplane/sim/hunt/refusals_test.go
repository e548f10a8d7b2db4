package hunt

import (
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
)

// Some histories must refuse a new method of a store, too.
func TestEachKindOfCallIsRefusedInSomeHistories(t *testing.T) {
	source, err := os.ReadFile("../../memstore/faults.go")
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[memstore.Op]bool)
	for seed := range uint64(3000) {
		for _, s := range Draw(seed).Steps {
			ops := originCalls[s.Calls]
			if s.Do == RefuseStatements {
				ops = mysqlCalls[s.Calls]
			}
			for _, op := range ops {
				drawn[op] = true
			}
		}
	}
	names := regexp.MustCompile(`\n\tOp\w+ +Op += "([^"]+)"`).FindAllSubmatch(source, -1)
	if len(names) < 25 {
		t.Fatalf("found %d kinds of calls in faults.go", len(names))
	}
	for _, name := range names {
		if !drawn[memstore.Op(name[1])] {
			t.Errorf("no history of 3000 seeds has a server that refuses %q", name[1])
		}
	}
}

// If two faults refuse the same calls, the refusal ends with the later end, and its time counts from the earlier
// beginning.
func TestRefusalsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		failed := 0
		call := r.hook(1, func() { failed++ })
		want := func(when string, refusedFor time.Duration) {
			t.Helper()
			if got := r.refusedFor(1, memstore.OpSend); got != refusedFor {
				t.Errorf("%s: refused for %v, want %v", when, got, refusedFor)
			}
			before := failed
			err := call(memstore.OpSend)
			if refused := refusedFor > 0; (err != nil) != refused || (failed > before) != refused {
				t.Errorf("%s: %v, %d calls have failed", when, err, failed-before)
			}
			if err := call(memstore.OpRead); err != nil {
				t.Errorf("%s: a read: %v", when, err)
			}
		}
		ops := originCalls[Sends]
		want("at first", 0)
		r.change([]int{0, 1}, ops, 1)
		time.Sleep(time.Second)
		want("in one fault", time.Second)
		r.change([]int{1}, ops, 1)
		time.Sleep(time.Second)
		r.change([]int{0, 1}, ops, -1)
		want("after the first has ended", 2*time.Second)
		r.change([]int{1}, ops, -1)
		want("after both", 0)
	})
}
