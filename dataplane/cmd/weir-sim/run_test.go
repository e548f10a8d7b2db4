package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane/sim"
	"github.com/weirhq/weir/shared/tuning"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call runs the command, and returns its exit code and output.
func call(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Standard output is a single JSON object with the figures, and nothing else.
func TestRunPrintsOneObject(t *testing.T) {
	code, stdout, stderr := call("run", "twonodes", "--seed", "7", "--json", "--duration", "2s")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var r map[string]any
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	for _, field := range []string{"admitted_over_limit", "convergence_delay_ms", "mysql_rows_read_per_s", "mysql_rows_written_per_s",
		"redis_commands_per_s", "wait_ms", "origin_reads_per_tick", "lost_cost", "bytes_per_key", "scenario", "seed", "tuning", "simulated"} {
		if _, ok := r[field]; !ok {
			t.Errorf("no %s in %s", field, stdout)
		}
	}
	if r["seed"] != 7.0 || r["bytes_per_key"].(float64) < 100 {
		t.Errorf("seed %v, %v bytes a key", r["seed"], r["bytes_per_key"])
	}
}

//weir:unraced
func TestRunComparesTunings(t *testing.T) {
	set := tuning.Default()
	set.Floor = 0.9
	document, err := set.Document()
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, string(document))
	code, stdout, stderr := call("run", "steady", "--duration", "5s", "--tuning", path, "--compare", "preset:rfc")
	if code != exitOK || !strings.Contains(stdout, "PRESET:RFC") || !strings.Contains(stdout, "RATIO") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	code, stdout, _ = call("run", "steady", "--duration", "5s", "--tuning", path, "--compare", "preset:rfc", "--json")
	var c sim.Comparison
	if err := json.Unmarshal([]byte(stdout), &c); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v", code, err)
	}
	if c.First.Tuning.Document.Floor != 0.9 || c.Second.Tuning.Document.Floor != 0.5 || len(c.Ratios) == 0 {
		t.Errorf("floors %v and %v, ratios %v", c.First.Tuning.Document.Floor, c.Second.Tuning.Document.Floor, c.Ratios)
	}
}

// The table has a row for each kind of arrivals, with both windows.
//
//weir:unraced
func TestWindowsPrintsATable(t *testing.T) {
	code, stdout, stderr := call("windows", "--duration", "125s")
	if code != exitOK || !strings.Contains(stdout, "\n| spent at cell ends, limit 100 | 1.99 | ") ||
		strings.Count(stdout, "\n") < 20 {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestListDescribesEveryScenario(t *testing.T) {
	_, stdout, _ := call("list")
	_, names, _ := call("list", "--names")
	for _, s := range sim.Scenarios() {
		if !strings.Contains(stdout, s.Name+": "+s.Summary) || !strings.Contains(names, s.Name+"\n") {
			t.Errorf("%s is not described", s.Name)
		}
	}
}

func TestPlayFindsWhatIsNotSo(t *testing.T) {
	code, stdout, _ := call("play", file(t, "regions eu limit 10/60s\n0s eu allow 6 -> 6 allowed\n"))
	if code != exitOK || !strings.HasSuffix(stdout, "as written\n") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	code, stdout, _ = call("play", file(t, "regions eu limit 10/60s\n0s eu allow 6 -> denied\n"))
	if code != exitViolated || !strings.Contains(stdout, "line 2: ") || !strings.Contains(stdout, "and not: 6 allowed") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
}

// An error about invalid input names its field and bound, with an exit code of its own.
func TestBadInputNamesTheField(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "nothing"}, `scenario "nothing" is unknown (steady, burst`},
		{[]string{"run", "steady", "--duration", "1ms"}, "duration is 1ms (1s to 24h0m0s)"},
		{[]string{"run", "steady", "--tuning", "preset:none"}, `preset "none" is unknown (default, rfc)`},
		{[]string{"run", "steady", "--tuning", file(t, `{"floor":7}`)}, "floor is 7 (0 to 1)"},
		// A day of traffic takes hours to simulate: the fault shows before.
		{[]string{"run", "steady", "--duration", "24h", "--compare", file(t, `{"flor":1}`)}, "flor"},
		{[]string{"run", "steady", "--seed", "x"}, "--seed"},
		{[]string{"run", "steady", "--node-share", "no"}, "--node-share"},
		{[]string{"run", "steady", "--redis-delay", "11s"}, "delay of Redis is 11s (0s to 10s)"},
		{[]string{"run", "relay-rfc", "--redis-gone"}, "the nodes of scenario relay-rfc have no limiters"},
		{[]string{"run", "steady", "--window", "round"}, `window is "round" (cells or precise)`},
		{[]string{"run", "tiers", "--window", "precise"}, `window is "precise" (scenario tiers takes cells)`},
		{[]string{"run", "relay-hop", "--window", "precise"}, `window is "precise" (scenario relay-hop takes cells)`},
		{[]string{"windows", "--duration", "1ms"}, "duration is 1ms (1s to 24h0m0s)"},
		{[]string{"run", "steady", "--plot", "--json"}, "--json and --plot"},
		{[]string{"play", file(t, "regions eu\n0s us wipe\n")}, `line 2: region "us" is unknown (eu, *)`},
	} {
		if code, stdout, stderr := call(c.args...); code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, %q, want %q", c.args, code, stderr, c.want)
		}
	}
	if code, _, stderr := call("run", "steady", "--tuning", "/nowhere"); code != exitFailed || !strings.Contains(stderr, "/nowhere") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// The binary prints only the command's own output, without that of the runner beneath it. Its help lists none of the
// runner's flags. The test has to run the binary itself, because in a test the runner is at work anyway.
func TestBinaryKeepsItsOutputClean(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "weir-sim")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"run", "twonodes", "--json", "--duration", "1s"}, {"run", "--help"}} {
		stdout, stderr, code := execute(t, binary, args...)
		if code != exitOK || stderr != "" || strings.Contains(stdout, "PASS") || strings.Contains(stdout, "test.") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func execute(t *testing.T, binary string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), binary, args...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}
