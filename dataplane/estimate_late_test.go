package dataplane_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
)

// The answer to a sync may arrive after its cell has ended, before any request has started the next cell.
func TestASyncThatOutlivesItsCell(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	n.known("k", 70_000, 100_000) // more than a window has milliseconds
	w.clock.advance(time.Minute)
	n.take("k", 2000, 100_000)
	w.origin("eu").Faults.Hook(func(memstore.Op) error { w.clock.advance(2 * time.Minute); return nil })
	n.sync()
	if d := n.take("k", 1, 100_000); !d.Allowed || d.Current != 1 {
		t.Errorf("two windows later: %+v", d)
	}
}
