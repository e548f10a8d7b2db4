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

// Every test that the README calls as a witness exists.
func TestTheReadmesWitnessesExist(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, dir := range []string{"../dataplane", "e2e"} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f.Name(), "_test.go") {
				text, err := os.ReadFile(dir + "/" + f.Name())
				if err != nil {
					t.Fatal(err)
				}
				source.Write(text)
			}
		}
	}
	named := 0
	for _, word := range strings.FieldsFunc(string(readme), func(r rune) bool { return r == '`' || r == ' ' || r == ',' || r == '|' }) {
		if strings.HasPrefix(word, "Test") {
			named++
			if !strings.Contains(source.String(), "func "+word+"(") {
				t.Errorf("the README calls %s, which does not exist", word)
			}
		}
	}
	if named < 5 {
		t.Errorf("only %d tests are named", named)
	}
}
