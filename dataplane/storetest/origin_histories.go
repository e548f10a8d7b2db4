package storetest

import (
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var originHistoryTests = map[string]func(*originTest){
	"are of cells whose costs ask for one": func(h *originTest) {
		c := h.cells(2)
		h.send(store.Cost{Cell: c[0], Add: 50})
		h.send(store.Cost{Cell: c[1], Add: 50, AtMost: 10, History: window.BeginHistory(100)}) // not added
		for i, total := range get(h, h, c...) {
			if total.History != 0 {
				h.Errorf("cell %d has a history: %v", i, total.History.AppendSteps(nil))
			}
		}
	},
	"mark what the total has reached, at the time at which it did": func(h *originTest) {
		c, asked := h.cell, window.BeginHistory(100)
		before := h.Clock(h)
		total := h.send(store.Cost{Cell: c, Add: 50, History: asked})[0]
		h.wantMarks(total, asked, 50, before)
		if read := get(h, h, c)[0]; read.History != total.History {
			h.Errorf("a read has the marks %v, want %v", read.History.AppendSteps(nil), total.History.AppendSteps(nil))
		}
		before = h.Clock(h)
		// The division of the first cost stays.
		total = h.send(store.Cost{Cell: c, Add: 30, History: window.BeginHistory(1000)})[0]
		h.wantMarks(total, asked, 80, before)
		total = h.send(store.Cost{Cell: c, Add: 500, AtMost: 600, History: asked})[0]
		h.wantMarks(total, asked, 580, before)
	},
	"mark what was restored when it was": func(h *originTest) {
		c, asked := h.cell, window.BeginHistory(100)
		h.send(store.Cost{Cell: c, Add: 50, History: asked})
		h.Wipe(h)
		before := h.Clock(h)
		total := h.send(store.Cost{Cell: c, Epoch: h.epoch(c), Restore: 50, Known: 60, History: asked})[0]
		h.wantMarks(total, asked, 60, before)
	},
}

var originHistoryForeignTests = map[string]func(*originTest){
	"mark foreign totals": func(h *originTest) {
		c, asked := h.cell, window.BeginHistory(100)
		before := h.Clock(h)
		h.send(store.Cost{Cell: c, Add: 20, History: asked})
		h.apply(store.Foreign{Cell: c, Count: 40})
		h.wantMarks(get(h, h, c)[0], asked, 60, before)
	},
}

// wantMarks expects a mark for each group that a count completes. The last of them are not from before a time.
func (h *originTest) wantMarks(total store.Total, asked window.History, count int64, before time.Time) {
	h.Helper()
	d, _ := asked.Division()
	got, _ := total.History.Division()
	marks := total.History.AppendSteps(nil)
	if want := min(int64(d.Marks), count/d.Group); got != d || int64(len(marks)) != want || !slices.IsSorted(marks) {
		h.Fatalf("the history of %d has the marks %v of %+v, want %d of %+v", count, marks, got, want, d)
	}
	elapsedMs := before.UnixMilli() - window.Start(h.cell.Sequence, h.cell.DurationMs())
	if step := int(elapsedMs * int64(d.Steps) / h.cell.DurationMs()); marks[len(marks)-1] < step {
		h.Errorf("the last mark is in step %d, want %d or later", marks[len(marks)-1], step)
	}
}
