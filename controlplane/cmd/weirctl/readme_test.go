package main

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/shared/manual"
	"github.com/weirhq/weir/shared/strict/flags"
)

// Every command on any page parses, every command has an example in the README, and the exit codes are the codes of
// --help.
func TestReadme(t *testing.T) {
	const page = "controlplane/cmd/weirctl/README.md"
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	parser := newParser(t)
	known := map[string]bool{"WEIR_TOKEN": true} // which has no flag
	for _, flag := range parser.Model.Flags {
		for _, name := range flag.Envs {
			known[name] = true
		}
	}
	shown := map[string]bool{}
	for _, example := range manual.Of(t, "weirctl") {
		parser := newParser(t)
		parse := parser.Parse
		if example.Mentioned { // in a sentence, which often leaves out required flags
			parse = func(args []string) (*kong.Context, error) {
				traced, err := kong.Trace(parser, args)
				return traced, errors.Join(err, traced.Error)
			}
		}
		parsed, err := parse(example.Args())
		if err != nil {
			if !example.Forgives(err) { // only a flag's name
				t.Errorf("%s: %v", example, err)
			}
			continue
		}
		for _, variable := range example.Env {
			if name, _, _ := strings.Cut(variable, "="); !known[name] {
				t.Errorf("%s: weirctl does not read %s", example, name)
			}
		}
		if example.Page == page && !example.Mentioned {
			shown[strings.Join(named(parsed.Selected()), " ")] = true
		}
	}
	for _, leaf := range parser.Model.Leaves(true) {
		if name := strings.Join(named(leaf), " "); !shown[name] {
			t.Errorf("README.md has no example of weirctl %s", name)
		}
	}
	for code := range strings.Lines(description) {
		if regexp.MustCompile(`^  \d  `).MatchString(code) && !strings.Contains(string(text), strings.TrimSpace(code)) {
			t.Errorf("README.md does not have exit code %s", code)
		}
	}
}

// newParser remembers nothing of another command.
func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&cli{}, flags.Strict(), kong.Name("weirctl"), kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// named returns a command's words.
func named(n *kong.Node) (path []string) {
	for ; n != nil && n.Type != kong.ApplicationNode; n = n.Parent {
		if n.Type == kong.CommandNode {
			path = append([]string{n.Name}, path...)
		}
	}
	return path
}
