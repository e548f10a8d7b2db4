package redisorigin

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// firstStep is the character of a mark in a history's first step: see luaHistory.
const firstStep = '0'

// formatHistory returns the text of a cell's history without marks, "" for none.
func formatHistory(c *window.Cell, h window.History) string {
	d, ok := h.Division()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d %d", d.Group, d.Marks, d.Steps, c.DurationMs(),
		window.Start(c.Sequence, c.DurationMs()))
}

// parseHistory reads a history's text. It returns an empty history for text that is none.
func parseHistory(text string) window.History {
	var numbers [5]int64
	for i := range numbers {
		number, rest, _ := strings.Cut(text, " ")
		n, ok := parseCount(number)
		if !ok {
			return 0
		}
		numbers[i], text = n, rest
	}
	if len(text) > window.MarksMax {
		return 0
	}
	var marks [window.MarksMax]int
	for i := range len(text) {
		marks[i] = int(text[i]) - firstStep
		if marks[i] < 0 || i > 0 && marks[i] < marks[i-1] {
			return 0
		}
	}
	d := window.Division{Group: numbers[0], Marks: int(numbers[1]), Steps: int(numbers[2])}
	return window.HistoryOf(d, marks[:len(text)])
}
