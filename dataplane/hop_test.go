package dataplane_test

import (
	"fmt"
	"testing"
	"time"
)

// A caller visits ten regions one after another, 5 s apart, while all loops turn: no region by
// itself admits more than the limit, and that is all that holds. A region's first contact with a
// key does not look at what other regions told before it.
func TestRegionsInTurn(t *testing.T) {
	const regions, limit = 10, 100
	w := newWorld(t)
	var all []*node
	for i := range regions {
		all = append(all, w.node(fmt.Sprint("r", i), fmt.Sprint("n", i)))
	}
	acquaint(t, all...)
	for _, n := range all {
		n.imports() // the first one reads everything
	}
	total := 0
	for i, n := range all {
		accepted := 0
		for range 2 * limit {
			if n.take("k", 1, limit).Allowed {
				accepted++
			}
		}
		if accepted > limit || i == 0 && accepted < limit {
			t.Errorf("region %d admits %d of %d", i, accepted, limit)
		}
		total += accepted
		for range 5 {
			w.clock.advance(time.Second)
			for _, m := range all {
				m.replay()
				m.tell()
				m.learn()
				m.flush()
				m.imports()
			}
		}
		for _, m := range all {
			m.digest()
		}
	}
	t.Logf("%d of %d admitted by %d regions", total, limit, regions)
}
