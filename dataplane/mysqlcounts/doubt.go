package mysqlcounts

import (
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// doubtsMax bounds the memory of doubts: a minute of failing flushes of a busy node.
const doubtsMax = 50_000

// doubts are the cells whose rows may have been stored at any time after their stamp,
// because the answer to a publish was lost or late. Their next publish stamps them anew:
// without it the same counts would find themselves stored, and change no stamp.
type doubts struct {
	mu    sync.Mutex
	cells map[window.Cell]struct{}
}

// add remembers what fits; the rest is left to the next full import.
func (d *doubts) add(counts []store.Count) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cells == nil {
		d.cells = make(map[window.Cell]struct{})
	}
	for _, n := range counts {
		if len(d.cells) >= doubtsMax {
			return
		}
		d.cells[n.Cell] = struct{}{}
	}
}

// about reports whether any of the rows is in doubt.
func (d *doubts) about(counts []store.Count) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.cells) == 0 {
		return false
	}
	for _, n := range counts {
		if _, ok := d.cells[n.Cell]; ok {
			return true
		}
	}
	return false
}

// settle ends the doubts about rows, and those about cells that no import asks for any
// more.
func (d *doubts) settle(counts []store.Count, nowMs int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range counts {
		delete(d.cells, n.Cell)
	}
	if len(d.cells) < doubtsMax/2 {
		return
	}
	for cell := range d.cells {
		if cell.ExpiresAtMs() <= nowMs {
			delete(d.cells, cell)
		}
	}
}
