package deploy_test

import (
	"os"
	"strings"
	"testing"
)

// The README's code is the example that runs, to the letter.
func TestTheReadmesCodeIsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	block, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("no Go block in the README")
	}
	example, err := os.ReadFile("../dataplane/readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(example), block) {
		t.Errorf("not in dataplane/readme_test.go:\n%s", block)
	}
}
