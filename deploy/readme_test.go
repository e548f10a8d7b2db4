package deploy_test

import (
	"os"
	"strings"
	"testing"
)

// The README's code is exactly a program that compiles, and whose output a test compares.
func TestTheReadmesCodeIsAProgram(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	block, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("no Go block in the README")
	}
	program, err := os.ReadFile("../dataplane/guides/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(program), "\n"+block) {
		t.Errorf("not dataplane/guides/hello/main.go:\n%s", block)
	}
}
