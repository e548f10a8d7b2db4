package manual

import (
	"slices"
	"strings"
	"testing"
)

const page = "# Page\n\n" +
	"Say `weirctl fleet -o json`, or `weirctl`, or `curl x`.\n\n" +
	"    $ make run\n" +
	"    Weir runs: ready in 0.7 s.\n" +
	"    WEIR_API=http://h weirctl override set a b \"c d\" --reason 'for # now'   # a remark\n" +
	"    curl -s http://h/metrics | grep weir_x && weirctl health\n" +
	"    weirctl rollout start \\\n" +
	"        --reason … # and more\n\n" +
	"```sh\nsome-script --flag\n```\n\n" +
	"```yaml\nmake: run\n```\n"

// Commands are found in each place, but not in output, prose and other languages.
func TestParse(t *testing.T) {
	var got []string
	for _, c := range Parse("page.md", page) {
		line := c.String()
		if c.Mentioned {
			line += " (mentioned)"
		}
		got = append(got, line)
	}
	want := []string{
		"page.md:3: weirctl fleet -o json (mentioned)",
		"page.md:5: make run",
		"page.md:7: WEIR_API=http://h weirctl override set a b c d --reason for # now",
		"page.md:8: curl -s http://h/metrics",
		"page.md:8: grep weir_x",
		"page.md:8: weirctl health",
		"page.md:9: weirctl rollout start --reason …",
		"page.md:13: some-script --flag",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestArgs(t *testing.T) {
	for line, want := range map[string][]string{
		"weirctl health [--watch]":             {"health", "--watch"},
		"weirctl keys top --hot | --denied":    {"keys", "top", "--hot"},
		"weirctl reset A B --reason …":         {"reset", "A", "B", "--reason", "…"},
		"weir-control --api-listen=:1 …":       {"--api-listen=:1"},
		"weirctl override set a 'b c' \"d e\"": {"override", "set", "a", "b c", "d e"},
	} {
		c := Command{Words: split(line)}
		if got := c.Args(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// For any page, every command has a word and a line of the page.
func FuzzParse(f *testing.F) {
	f.Add(page)
	f.Fuzz(func(t *testing.T, text string) {
		for _, c := range Parse("page.md", text) {
			if len(c.Words) == 0 || c.Line < 1 || c.Line > strings.Count(text, "\n")+1 {
				t.Errorf("%q: %+v", text, c)
			}
		}
	})
}
