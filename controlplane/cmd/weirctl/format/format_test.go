package format

import (
	"strings"
	"testing"
)

// A text of other people does not control the terminal, and neither hides nor reverses the text around it.
func TestTextOfOthersIsPlain(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b]0;title\a\x1b[2J":       "?]0;title??[2J",
		"a\x7f\u009b31m":              "a??31m",
		"\x9b31m":                     "\uFFFD31m",
		"a\tb\r\nc\vd\u2028e\u0085f":  "a b  c d e f",
		"abc\u202edef\u202c":          "abc?def?",
		"\u2066abc\u2069\u200b\ufeff": "?abc???",
		"\u061cabc\U000e0041":         "?abc?",
		"Zürich 東京 e\u0301 🙂":         "Zürich 東京 e\u0301 🙂",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	var b strings.Builder
	Prose(&b, "\x1b[2J: ", "\u202etext")
	if got, want := b.String(), "?[2J: ?text\n"; got != want {
		t.Errorf("prose is %q, want %q", got, want)
	}
}

// A long headline takes several lines, of which the first begins at the left. So the table below looks apart.
func TestAHeadlineIsIndentedFromItsSecondLine(t *testing.T) {
	var b strings.Builder
	Headline(&b, "rollout r1, "+strings.Repeat("word ", 40))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "rollout r1, word") || !strings.HasPrefix(lines[1], "  word") {
		t.Fatalf("the headline is %q", lines)
	}
	for _, line := range lines {
		if len(line) > proseWidth {
			t.Errorf("a line has %d columns: %s", len(line), line)
		}
	}
}
