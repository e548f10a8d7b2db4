package plan

import (
	"os"
	"regexp"
	"testing"

	"github.com/weirhq/weir/dataplane/memstore"
)

// Some histories must refuse a new method of a store, too.
func TestEachKindOfCallIsRefusedInSomeHistories(t *testing.T) {
	source, err := os.ReadFile("../../../../memstore/faults.go")
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[memstore.Op]bool)
	for seed := range uint64(3000) {
		for _, s := range Draw(seed).Steps {
			ops := OriginCalls[s.Calls]
			if s.Do == RefuseStatements {
				ops = MySQLCalls[s.Calls]
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
