package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns all Markdown files of the repository, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	walk(t, ".md", func(path string, text []byte) { all[path] = string(text) })
	if len(all) < 10 {
		t.Fatalf("found only %d pages", len(all))
	}
	return all
}

// walk visits the repository's files with this ending, except installed and built files.
func walk(t *testing.T, suffix string, visit func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "out" || d.Name() == "bin" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, suffix) {
			return nil
		}
		text, err := os.ReadFile(path)
		visit(path, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)\(`)
	link     = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)

	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every test that a page calls as a witness exists.
func TestWitnessesExist(t *testing.T) {
	exists := map[string]bool{}
	walk(t, "_test.go", func(_ string, text []byte) {
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			exists[string(m[1])] = true
		}
	})
	named := 0
	for path, text := range pages(t) {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			if named++; !exists[m[1]] {
				t.Errorf("%s calls %s, which does not exist", path, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d tests are named", named)
	}
}

// Every link to a file of the repository leads to a file, and every link to a heading of a page leads to a heading.
func TestLinksLeadSomewhere(t *testing.T) {
	links, all := 0, pages(t)
	for path, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			to := path
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			} else if m[2] != "" && !anchors(all[to])[m[2]] {
				t.Errorf("%s links to %s%s, which is no heading there", path, m[1], m[2])
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found", links)
	}
}

func TestAnchorsAreGitHubs(t *testing.T) {
	got := anchors("# A `page`: what, if?\n\n## Over-all\n\n    # no heading\n")
	if len(got) != 2 || !got["#a-page-what-if"] || !got["#over-all"] {
		t.Errorf("anchors %v", got)
	}
}

// anchors returns the fragments of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(notInAnchor.ReplaceAllString(m[1], ""))
		found["#"+strings.ReplaceAll(name, " ", "-")] = true
	}
	return found
}
