package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
)

// alone is a limiter of one process: what a guide does is the same in a fleet.
func alone(t *testing.T) *dataplane.Limiter {
	t.Helper()
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// The Go of each page is what the test of its name runs, and README.md links to each page.
func TestPagesShowWhatTestsRun(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 8 {
		t.Fatal(pages, err)
	}
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
		code, err := os.ReadFile(strings.TrimSuffix(page, ".md") + "_test.go")
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no Go", page)
		}
		for _, block := range blocks {
			if !strings.Contains(string(code), string(block[1])) {
				t.Errorf("%s: not in its test:\n%s", page, block[1])
			}
		}
	}
}
