package leases

import (
	"strconv"
	"testing"
)

// A node that knows of as many leases as it may forgets those that have ended before it leaves one out, and looks for
// them once a second: all others wait meanwhile.
func TestEndedLeasesMakeRoom(t *testing.T) {
	nowMs := int64(1000)
	b := &Book{SteadyMs: func() int64 { return nowMs }, known: make(map[name]*known)}
	lease := func(id string, endsMs int64) *known { return &known{Lease: Lease{ID: id}, endsMs: endsMs} }
	for i := range ownMax {
		k := lease(strconv.Itoa(i), 5000)
		b.known[k.name()] = k
	}
	for _, step := range []struct {
		id    string
		nowMs int64
		want  bool
	}{{"one more", 4000, false}, {"one more", 4999, false}, {"one more", 5000, true}, {"7", 5000, true}} {
		nowMs = step.nowMs
		if is := b.keep(lease(step.id, 9000)); is != step.want {
			t.Errorf("%+v: %t", step, is)
		}
	}
	if n := len(b.known); n != 2 {
		t.Errorf("%d are known", n)
	}
	for i := range ownMax {
		b.keep(lease(strconv.Itoa(i), 5500))
	}
	if nowMs = 5999; b.keep(lease("two more", 9000)) {
		t.Error("it has looked a moment ago")
	}
	if nowMs = 6000; !b.keep(lease("two more", 9000)) {
		t.Error("there is room a second later")
	}
}
