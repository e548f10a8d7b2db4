package dataplane_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each test that a document names as the proof of a promise must exist.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	exist := testsOfTheRepository(t)
	for _, doc := range []string{"DESIGN.md", "ACCURACY.md", "README.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1) {
			if !exist[name] {
				t.Errorf("%s names %s", doc, name)
			}
		}
	}
}

// Each file that DESIGN.md names must exist: in this directory, or in an internal package.
func TestTheDesignNamesFilesThatExist(t *testing.T) {
	text, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b[a-z_/]+\.go\b`).FindAllString(string(text), -1)
	if len(names) < 30 {
		t.Errorf("DESIGN.md names %d files", len(names))
	}
	for _, name := range names {
		if !slices.ContainsFunc([]string{".", "internal/cell", "internal/outbox", "internal/rules"}, func(folder string) bool {
			_, err := os.Stat(filepath.Join(folder, name))
			return err == nil
		}) {
			t.Errorf("DESIGN.md names %s", name)
		}
	}
}

// The code of README.md must be the code of Example_stores, which compiles.
func TestREADMEsCodeIsTheExamples(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("readme_stores_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) != 2 {
		t.Errorf("README.md has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(string(example), string(block[1])) {
			t.Errorf("not in readme_stores_test.go:\n%s", block[1])
		}
	}
}

func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	exist, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			exist[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return exist
}
