package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets bash run this very binary as weirctl.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_WEIRCTL") != "" {
		main()
	}
	os.Exit(m.Run())
}

// onPath returns the environment of a shell that finds this binary as weirctl.
func onPath(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(executable, filepath.Join(dir, "weirctl")); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "TEST_WEIRCTL=1", "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
}

// wantOutput runs a script.
func wantOutput(t *testing.T, want, shell string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), shell, args...)
	command.Env = onPath(t)
	if out, err := command.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// The script for bash completes commands, sub-commands, flags and values, with bash's own function call. | separates
// bash's words.
//
//weir:unraced
func TestBashCompletes(t *testing.T) {
	lines := [][2]string{
		{"weirctl|ro", "rollout"},
		{"weirctl|re", "reset resets retire"},
		{"weirctl|cleanup|", "pause resume run status"},
		{"weirctl|-o|json|cleanup|r", "resume run"},
		{"weirctl|--api|http|:|//h|cleanup|", "pause resume run status"}, // bash takes a URL apart
		{"weirctl|--timeout|1s|rollout|a", "abort approve"},
		{"weirctl|retire|approve|", "drop rename"},
		{"weirctl|retire|approve|rename|--re", "--reason"},
		{"weirctl|token|create|ci|--role|", "admin operator viewer"},
		{"weirctl|token|create|ci|--role|=|o", "operator"},
		{"weirctl|token|create|ci|--role|=", "admin operator viewer"},
		{"weirctl|token|create|ci|--role=v", "--role=viewer"},
		{"weirctl|namespace|set|acme|api|--no-s", "--no-shadow"},
		{"weirctl|namespace|set|acme|api|--outage|", "closed local open"},
		{"weirctl|rollout|status|--w", "--watch"},
		{"weirctl|rollout|start|--limits|", ""}, // a file
		{"weirctl|rollout|start|--newly", "--newly-denied-callers --newly-denied-share"},
		{"weirctl|rollout|start|--tuning|", ""}, // a file
		{"weirctl|completion|", "bash fish zsh"},
		{"weirctl|_", ""}, // an argument for shells only
		{"weirctl|--tok", "--token-file"},
		{"weirctl|override|set|acme|api|user_*|--limit|5|--d", "--dry-run --duration"},
	}
	script := "set -eu\nsource <(weirctl completion bash)\ncomplete -p weirctl\n"
	want := "complete -o default -F _weirctl weirctl\n"
	for _, line := range lines {
		words := strings.Split(line[0], "|")
		script += fmt.Sprintf("COMP_WORDS=('%s')\nCOMP_CWORD=%d\n_weirctl\necho '%s -> '\"${COMPREPLY[*]:-}\"\n", strings.Join(words, "' '"), len(words)-1, line[0])
		want += line[0] + " -> " + line[1] + "\n"
	}
	wantOutput(t, want, "bash", "--norc", "-c", script)
}

// Lines that all shells complete alike, each with its completions.
var completed = [][2]string{
	{"weirctl ro", "rollout"},
	{"weirctl cleanup ", "pause resume run status"},
	{"weirctl --api http://h:1 retire approve ", "drop rename"},
	{"weirctl token create ci --role ", "admin operator viewer"},
	{"weirctl namespace set acme api --no-s", "--no-shadow"},
	{"weirctl completion ", "bash fish zsh"},
}

// fish prints its own completions of each line.
//
//weir:unraced
func TestFishCompletes(t *testing.T) {
	script, want := "weirctl completion fish | source\n", ""
	for _, line := range completed {
		script += fmt.Sprintf("echo '%s ->' (complete -C '%s')\n", line[0], line[0])
		want += line[0] + " -> " + line[1] + "\n"
	}
	wantOutput(t, want, "fish", "--no-config", "-c", script)
}

// zsh completes only in its line editor. The test calls the function as the line editor would, and replaces the
// functions that it calls: compadd prints.
//
//weir:unraced
func TestZshCompletes(t *testing.T) {
	script := `compdef() { print -- "compdef $*" }
compadd() { print -- "$line -> ${(P)2}" }
_files() { print -- "$line -> files" }
source <(weirctl completion zsh)
`
	want := "compdef _weirctl weirctl\n"
	for _, line := range append(completed, [2]string{"weirctl rollout start --tuning ", "files"}) {
		words := strings.Split(line[0], " ")
		script += fmt.Sprintf("line='%s' words=('%s') CURRENT=%d\n_weirctl\n", line[0], strings.Join(words, "' '"), len(words))
		want += line[0] + " -> " + line[1] + "\n"
	}
	wantOutput(t, want, "zsh", "-f", "-c", script)
}

// Each shell of the enum has a script that calls weirctl.
func TestCompletionScripts(t *testing.T) {
	w := newWorld(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code := w.run(t, "completion", shell); code != exitOK || !strings.Contains(w.stdout.String(), completeArgument) {
			t.Errorf("%s: exit %d, %s", shell, code, w.stdout.String())
		}
	}
	if code := w.run(t, "completion", "csh"); code != exitUsage {
		t.Errorf("exit %d", code)
	}
}
