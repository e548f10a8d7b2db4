package redisorigin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/window"
)

var minute = window.Cell{Key: window.Key{Workspace: "w", Namespace: "n", Identifier: "i", Duration: time.Minute}, Sequence: 28}

// A history is read back as it was written, with marks that a script appended.
func TestHistoriesAreReadBack(t *testing.T) {
	for _, limit := range []int64{1, 5, 27, 28, 280, 1_000_000, window.LimitMax} {
		h := window.BeginHistory(limit)
		text := formatHistory(&minute, h)
		if got := parseHistory(text); got != h {
			t.Errorf("%q is read back as %x, want %x", text, got, h)
		}
		d, _ := h.Division()
		marked := h.Count(d.Group, 0, 60_000)
		if got := parseHistory(text + " 0"); got.Next() != marked.Next() || got.Gone(60_000, 60_000) != d.Group {
			t.Errorf("%q with a mark in the first step is read back as %v", text, got.AppendSteps(nil))
		}
	}
	if formatHistory(&minute, 0) != "" {
		t.Error("an empty history has text")
	}
}

// Any text is a history that can be used, and nearly all texts are none.
func FuzzParseHistory(f *testing.F) {
	f.Add("10 28 28 60000 1700000040000 003")
	f.Add("")
	f.Add("1 5 51 1000 0 012349")
	f.Add(fmt.Sprint(int64(1)<<52) + " 28 28 60000 0 " + strings.Repeat("K", 28))
	f.Add("0 0 0 0 0 ")
	f.Fuzz(func(t *testing.T, text string) {
		h := parseHistory(text)
		d, ok := h.Division()
		steps := h.AppendSteps(nil)
		if ok && (len(steps) > d.Marks || h.Gone(60_000, 60_000) != int64(len(steps))*d.Group) {
			t.Errorf("%q has the marks %v of %+v", text, steps, d)
		}
	})
}
