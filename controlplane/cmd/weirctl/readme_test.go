package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Every example of the README is a command that weirctl takes, every command has an
// example, and the exit codes are those of --help.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var c cli
	parser, err := kong.New(&c, kong.Name("weirctl"), kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^    (?:WEIR_\w+=\S+ )*weirctl (.*)$`).FindAllStringSubmatch(string(text), -1) {
		command, _, _ := strings.Cut(line[1], "   #")
		parsed, err := parser.Parse(shellWords(command))
		if err != nil {
			t.Errorf("%s: %v", line[0], err)
			continue
		}
		shown[strings.Join(named(parsed.Selected()), " ")] = true
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

// named is a command's words.
func named(n *kong.Node) (path []string) {
	for ; n != nil && n.Type != kong.ApplicationNode; n = n.Parent {
		if n.Type == kong.CommandNode {
			path = append([]string{n.Name}, path...)
		}
	}
	return path
}

// shellWords splits as a shell does, as far as the README goes.
func shellWords(line string) (args []string) {
	for _, m := range regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`).FindAllString(line, -1) {
		args = append(args, strings.NewReplacer(`"`, "", `'`, "").Replace(m))
	}
	return args
}
