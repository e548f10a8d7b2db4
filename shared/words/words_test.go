package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommentsAndPagesAreCounted(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a/a.go", "//go:build linux\n\n// Package a is what the node tells.\npackage a // whatever\n\nconst what = \"what\"\n")
	write("gen/b.go", "// Package b what what what.\npackage b\n")
	write("README.md", "Pages can say `what` they should, for example [those](what.md).\n\n```go\nwhat what\n```\n")
	var out strings.Builder
	err := run([]string{"-worst", "1", dir}, &out)
	if err == nil || !strings.HasPrefix(err.Error(), "comments miss the targets for: what") || !strings.Contains(err.Error(), "pages miss") {
		t.Errorf("%v, want an error that names the targets", err)
	}
	for _, want := range []string{"COMMENTS, 8 words", "PAGES, 9 words", "  a\n", "README.md"} {
		if !strings.Contains(strings.ReplaceAll(out.String(), dir+"/", "  "), want) {
			t.Errorf("%s\nlacks %q", out.String(), want)
		}
	}
	c, err := comment(filepath.Join(dir, "a/a.go"))
	if got := count(c); err != nil || got.found != [7]int{2, 1} {
		t.Errorf("%q: %v, %v", c, got.found, err)
	}
	p := readPage("Pages can say `what` they should, for example [those](what.md).\n")
	if got := count(p.prose); got.found != [7]int{0, 1, 1, 0, 0, 2, 1} {
		t.Errorf("%q: %v", p.prose, got.found)
	}
	write("b.md", strings.Repeat("a b ", 40)+"\n")
	if err := run([]string{dir}, &out); err == nil || !strings.Contains(err.Error(), "b.md:1") {
		t.Errorf("%v, want one that names the line", err)
	}
}

func TestTextThatMeetsTheTargetsPasses(t *testing.T) {
	dir := t.TempDir()
	page := "You can set a limit, for example a thousand requests a minute.\n"
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{dir}, new(strings.Builder)); err != nil {
		t.Error(err)
	}
}

func TestLongLinesAndCells(t *testing.T) {
	long, cell := strings.Repeat("word ", 27), strings.Repeat("word ", 33)
	for name, c := range map[string]struct {
		source string
		found  int
	}{
		"prose":        {long, 1},
		"code":         {"```\n" + long + "\n```", 0},
		"a table":      {"| " + long + "| b |", 0},
		"a long cell":  {"| a | " + cell + "|", 1},
		"a link":       {"[![" + long + "](a)](b)", 0},
		"its target":   {"See [a](" + strings.Repeat("a/", 80) + ").", 1},
		"a cell's one": {"| [a](" + strings.Repeat("a/", 90) + ") |", 0},
	} {
		if p := readPage(c.source); len(p.long) != c.found {
			t.Errorf("%s: %q, want %d", name, p.long, c.found)
		}
	}
}

func FuzzPage(f *testing.F) {
	f.Add("| a | b |\n```\nx\n```\n[a](b)")
	f.Fuzz(func(t *testing.T, source string) {
		if p := readPage(source); len(p.prose) > 2*len(source)+1 {
			t.Errorf("%d bytes of %d", len(p.prose), len(source))
		}
	})
}
