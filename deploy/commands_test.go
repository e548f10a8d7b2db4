package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/manual"
)

// Every command of every page is compared with something, or the reason why not is in a list. Other packages' tests
// compare commands of weir-node, weir-control, weirctl and weir-sim with their parsers. This test compares make and go.
func TestCommandsOfThePages(t *testing.T) {
	root := manual.Root(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	tests := functions(t)
	checked := map[string]int{}
	for _, c := range manual.All(t) {
		program := c.Words[0]
		checked[program]++
		if why := manual.Elsewhere[program]; why == "" && !manual.Ours(program) {
			t.Errorf("%s: no test holds %s against anything, and nothing says why not", c, program)
		}
		if missing := missingFile(root, c); missing != "" {
			t.Errorf("%s: there is no %s", c, missing)
		}
		var fault string
		switch program {
		case "make":
			fault = makeFault(string(makefile), c)
		case "go":
			fault = goFault(root, tests, c)
		case "curl":
			fault = curlFault(c)
		}
		if fault != "" {
			t.Errorf("%s: %s", c, fault)
		}
	}
	for program := range manual.Elsewhere {
		if checked[program] == 0 {
			t.Errorf("no page calls %s any more", program)
		}
	}
	if checked["make"] < 20 || checked["go"] < 10 || checked["weirctl"] < 40 {
		t.Errorf("found only %v", checked)
	}
}

// The test above finds the faults for which it is written.
func TestCommandsOfThePagesNoticeFaults(t *testing.T) {
	root := manual.Root(t)
	const makefile = "run: build\n\t./run $(ARGS)\n"
	tests := map[string][]string{"dataplane": {"TestDecides", "BenchmarkHot"}}
	for line, says := range map[string]string{
		"make fly":                                   "no target fly",
		"make run SPEED=2":                           "does not read SPEED",
		"make run ARGS=x":                            "",
		"go run ./dataplane/cmd/weir-nodes":          "no package ./dataplane/cmd/weir-nodes",
		"go run ./dataplane/cmd/weir-node":           "",
		"go -C deploy/checks test ./...":             "no directory deploy/checks",
		"go test -run Deci ./dataplane":              "",
		"go test -run Guess ./dataplane":             "-run Guess matches nothing",
		"go test -bench 'Deci' ./dataplane":          "-bench Deci matches nothing",
		"go test -run '^$' -bench . ./dataplane":     "",
		"sh deploy/local/nothing.sh":                 "there is no deploy/local/nothing.sh",
		"go test -run Decides/deeper ./dataplane -v": "",
		"curl http://h/x --json '{}'":                "--json",
		"curl http://h/x -d '{}'":                    "",
	} {
		for _, c := range manual.Parse("README.md", "    $ "+line+"\n") {
			fault := makeFault(makefile, c)
			switch c.Words[0] {
			case "go", "sh":
				fault = goFault(root, tests, c)
			case "curl":
				fault = curlFault(c)
			}
			if missing := missingFile(root, c); c.Words[0] == "sh" && missing != "" {
				fault = "there is no " + missing
			}
			if (says == "") != (fault == "") || !strings.Contains(fault, says) {
				t.Errorf("%s: says %q, want %q", line, fault, says)
			}
		}
	}
}

// functions returns the names of the tests and benchmarks below each directory.
func functions(t *testing.T) map[string][]string {
	found := map[string][]string{}
	walk(t, "_test.go", func(path string, text []byte) {
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			dir, err := filepath.Rel("..", filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			found[dir] = append(found[dir], string(m[1]))
		}
	})
	return found
}

// missingFile returns a path of the repository that a command names and that is not there.
func missingFile(root string, c manual.Command) string {
	for _, word := range c.Words {
		room, _, below := strings.Cut(word, "/")
		if _, err := os.Stat(filepath.Join(root, room)); !below || err != nil || slices.Contains([]string{"", ".", "..", "out", "bin"}, room) || strings.Contains(word, "secrets/") || strings.Contains(word, "NAME") {
			continue
		}
		if found, err := filepath.Glob(filepath.Join(root, word)); err != nil || len(found) == 0 {
			return word
		}
	}
	return ""
}

// curlFault is a flag that many installed versions of curl do not have.
func curlFault(c manual.Command) string {
	if slices.Contains(c.Words, "--json") {
		return "--json needs curl 7.82, which Ubuntu 22.04 and Debian 11 lack: write -H 'Content-Type: application/json' -d"
	}
	return ""
}

func makeFault(makefile string, c manual.Command) string {
	for _, word := range c.Args() {
		if name, _, ok := strings.Cut(word, "="); ok {
			if !strings.Contains(makefile, "$("+name+")") {
				return "the Makefile does not read " + name
			}
		} else if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(word) + `:`).MatchString(makefile) {
			return "no target " + word
		}
	}
	return ""
}

// goFault returns the fault of a go run or go test command, from the root or from the page's directory.
func goFault(root string, tests map[string][]string, c manual.Command) string {
	args, dir := c.Args(), ""
	if len(args) > 2 && args[0] == "-C" {
		dir, args = args[1], args[2:]
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			return "no directory " + dir
		}
	}
	var in []string
	for i, word := range args {
		if i > 0 && (args[i-1] == "-run" || args[i-1] == "-bench") || word != "." && !strings.HasPrefix(word, "./") {
			continue
		}
		found := false
		for _, base := range []string{dir, filepath.Join(filepath.Dir(c.Page), dir)} {
			path := filepath.Join(base, strings.TrimSuffix(word, "/..."))
			if sources, err := filepath.Glob(filepath.Join(root, path, "*.go")); err == nil && len(sources) > 0 || strings.HasSuffix(word, "/...") {
				found, in = true, append(in, filepath.Join(base, word))
			}
		}
		if !found {
			return "no package " + word
		}
	}
	if args[0] != "test" {
		return ""
	}
	if len(in) == 0 {
		in = []string{filepath.Dir(c.Page)}
	}
	return patternFault(args, in, tests)
}

// patternFault returns a -run or -bench that matches no function of the packages.
func patternFault(args, in []string, tests map[string][]string) string {
	for i, flag := range args[:len(args)-1] {
		kind := map[string]string{"-run": "Test|Fuzz|Example", "-bench": "Benchmark"}[flag]
		pattern, _, _ := strings.Cut(args[i+1], "/")
		if kind == "" || pattern == "^$" || pattern == "xxx" { // nothing, on purpose
			continue
		}
		wanted, err := regexp.Compile(pattern)
		if err != nil {
			return err.Error()
		}
		matches := func(name string) bool {
			return regexp.MustCompile(`^(`+kind+`)`).MatchString(name) && wanted.MatchString(name)
		}
		found := false
		for dir, names := range tests {
			below := func(path string) bool {
				parent, all := strings.CutSuffix(path, "/...")
				return dir == path || all && (dir == parent || strings.HasPrefix(dir, parent+"/"))
			}
			found = found || slices.ContainsFunc(in, below) && slices.ContainsFunc(names, matches)
		}
		if !found {
			return flag + " " + args[i+1] + " matches nothing"
		}
	}
	return ""
}
