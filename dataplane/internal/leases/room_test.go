package leases

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

func knownOf(namespace, id string, endsMs int64) *known {
	return &known{Lease: Lease{Key: slots.Name{Namespace: namespace}, ID: id}, endsMs: endsMs}
}

// A node that has as many leases as it may list takes further leases when others have ended.
func TestEndedLeasesMakeRoom(t *testing.T) {
	var x index
	for i := 0; x.keep(knownOf(strconv.Itoa(i%1000), strconv.Itoa(i), 5000), 0, 1000); i++ {
	}
	if n := len(x.live); n < liveMax*9/10 {
		t.Fatalf("%d are known, of at most %d", n, liveMax)
	}
	if x.keep(knownOf("0", "one more", 9000), 0, 4999) {
		t.Error("there is room before any has ended")
	}
	for nowMs := int64(5000); len(x.live) > 1000; nowMs++ {
		if id := strconv.FormatInt(nowMs, 10); !x.keep(knownOf(id, id, 90_000), 0, nowMs) {
			t.Fatalf("no room at %d", nowMs)
		}
	}
}

// However many namespaces flood a node with leases, another namespace finds room.
func TestAFloodOfLeasesLeavesOthersRoom(t *testing.T) {
	var x index
	for namespace := range 5 {
		n := 0
		for x.keep(knownOf(strconv.Itoa(namespace), strconv.Itoa(n), 5000), 0, 1000) {
			n++
		}
		if n == 0 {
			t.Errorf("flood %d finds no room", namespace)
		}
	}
	for i := range 20 {
		if !x.keep(knownOf("victim", strconv.Itoa(i), 5000), 0, 1000) {
			t.Fatalf("lease %d of another namespace finds no room beside %d", i, len(x.live))
		}
	}
	if !x.keep(knownOf("0", "0", 6000), 0, 1000) {
		t.Error("a lease that is held is not renewed")
	}
}

// A call drops a bounded number of leases, however many end at once.
func TestACallDropsFewLeases(t *testing.T) {
	var x index
	for i := range 1000 {
		x.keep(knownOf("n", strconv.Itoa(i), 5000), 0, 1000)
		x.end(&knownOf("n", fmt.Sprint("over ", i), 0).Lease, 1000)
	}
	x.keep(knownOf("n", "next", 900_000), 0, 1000+overFor.Milliseconds())
	if live, over := len(x.live), x.over.Len(); live != 1001-expireMax || over != 1000-expireMax {
		t.Errorf("%d live leases and %d others are left", live, over)
	}
}

// The index agrees with a map that forgets nothing too early.
func TestTheIndexAgreesWithAMap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var x index
		live, over := make(map[string]int64), make(map[string]int64)
		for nowMs := int64(1); nowMs < 2000; nowMs++ {
			id := strconv.Itoa(r.IntN(50))
			if r.IntN(3) > 0 {
				ends := nowMs + r.Int64N(100)
				x.keep(knownOf("n", id, ends), 0, nowMs)
				live[id] = ends
				delete(over, id)
			} else {
				x.end(&knownOf("n", id, 0).Lease, nowMs)
				over[id] = nowMs
				delete(live, id)
			}
			maps.DeleteFunc(live, func(_ string, endsMs int64) bool { return endsMs <= nowMs })
			x.expire(nowMs)
			if len(x.live) != len(live) || x.over.Len() != len(over) {
				t.Fatalf("seed %d: %d live and %d over, want %d and %d", seed, len(x.live), x.over.Len(), len(live), len(over))
			}
			for id := range over {
				if k := x.find(name{slots.Name{Namespace: "n"}, id}); k == nil || !k.over {
					t.Fatalf("seed %d: %s is over, and known as %+v", seed, id, k)
				}
			}
		}
	}
}

// However many leases a caller has, in however many namespaces, another caller finds room. A lease that is renewed
// stays in its share.
func TestAFloodOfOneCallersLeasesLeavesOthersRoom(t *testing.T) {
	var x index
	by := func(label string) fair.Caller { return fair.In(fair.With(t.Context(), label)) }
	keep := func(label, id string, namespace int) bool {
		return x.keep(knownOf(strconv.Itoa(namespace), id, 5000), by(label), 1000)
	}
	for i := range liveMax {
		keep("flood", strconv.Itoa(i), i%20)
	}
	if n := len(x.live); n != liveMax*3/4 {
		t.Errorf("one caller has %d leases of %d", n, liveMax)
	}
	for i := range liveMax / 10 {
		if !keep("victim", fmt.Sprint("v", i), i%20) {
			t.Fatalf("another caller finds no room for lease %d", i)
		}
	}
	for i := range 1000 {
		if !keep("victim", strconv.Itoa(i), i%20) {
			t.Fatal("a lease that another caller has acquired is not renewed")
		}
	}
	x.expire(1000)
	for len(x.live) > 0 {
		x.expire(5000)
	}
	if n := x.shares.Used(); n != 0 {
		t.Errorf("%d places are taken by leases that have ended", n)
	}
}
