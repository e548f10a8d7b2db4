package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
)

// alone returns the limiter of a single process. The guides' code does the same in a fleet.
func alone(t *testing.T) *dataplane.Limiter {
	t.Helper()
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// Each page shows the Go code that the test of its name runs, or a program in the folder of its name. README.md links
// to each page. An explanation may have no Go.
func TestPagesShowWhatTestsRun(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 14 {
		t.Fatal(pages, err)
	}
	shown := 0
	for _, page := range pages {
		if page == "README.md" {
			continue
		}
		if !strings.Contains(string(index), "]("+page+")") {
			t.Errorf("README.md has no link to %s", page)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1)
		if len(blocks) == 0 {
			continue
		}
		shown++
		code := codeOf(t, strings.TrimSuffix(page, ".md"))
		for _, block := range blocks {
			if !strings.Contains(code, string(block[1])) {
				t.Errorf("%s: not in its test:\n%s", page, block[1])
			}
		}
	}
	if shown < 14 {
		t.Errorf("%d pages show Go, want 14 or more", shown)
	}
}

// codeOf returns the code that tests run for a page: its test, and the programs in its folder.
func codeOf(t *testing.T, name string) string {
	t.Helper()
	var code strings.Builder
	for _, pattern := range []string{name + "_test.go", name + "/*.go", name + "/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
			code.WriteByte('\n')
		}
	}
	return code.String()
}
