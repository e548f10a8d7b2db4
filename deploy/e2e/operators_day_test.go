package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// All actions of an operator on a day, with weirctl alone. out/operators-day.txt has the whole transcript.
func TestAnOperatorsDay(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testAnOperatorsDay)
}

func testAnOperatorsDay(t *testing.T) {
	s := start(t, func(o *stack.Options) { o.ControlArgs = []string{"--watch-interval=1s"} })
	d := &day{t: t, api: s.API(), dir: t.TempDir()}
	t.Cleanup(d.write)
	d.file("canary.json", `{
  "baseline_ms": 1000,
  "stages": [{"regions": ["eu"], "approval": true, "bake_ms": 2000}, {"all": true, "bake_ms": 2000}],
  "guardrails": `+onlyTheOrigin+`
}`)
	d.file("careful.json", `{
  "baseline_ms": 3000,
  "stages": [{"regions": ["eu"], "bake_ms": 120000}, {"all": true, "bake_ms": 1000}],
  "guardrails": `+onlyTheOrigin+`
}`)

	d.says("The first look, at a fleet that has only just begun.")
	d.until("4 live", "fleet")
	d.run(0, "version")
	d.well("doctor")
	d.well("health")
	for _, empty := range []string{"rollout history", "override list acme api", "namespace list acme", "resets acme api", "keys top", "token list"} {
		d.run(0, strings.Fields(empty)...)
	}
	d.run(1, "rollout", "status")
	d.run(1, "retire", "status")
	d.run(0, "cleanup", "status")

	d.says("A tuning is looked at beforehand, approved, and rolled out.")
	d.run(0, "rollout", "preview", "--set", "floor=0.3", "--within", "30s")
	d.run(0, "rollout", "start", "--id", "calmer", "--set", "floor=0.3", "--plan", "canary.json", "--reason", "fewer rows in MySQL")
	d.until("awaiting approval", "rollout", "status", "calmer")
	d.until("rollout_waits", "health")
	d.run(0, "rollout", "approve", "calmer", "--stage", "1", "--reason", "the preview looks well")
	d.run(0, "rollout", "status", "--watch", "--every", "1s", "calmer")

	d.says("The next one meets an outage: Redis of eu dies under its canary.")
	callers(t, s)
	d.run(0, "rollout", "start", "--id", "bolder", "--tuning", "rfc", "--plan", "careful.json", "--reason", "as the RFC has it")
	d.until("baking", "rollout", "status", "bolder")
	if err := s.Redis["eu"].Kill(); err != nil {
		t.Fatal(err)
	}
	watched := d.run(1, "rollout", "status", "--watch", "--every", "1s", "bolder")
	if !strings.Contains(watched, "rolled back: stage 1 (eu): ") {
		t.Errorf("nothing says why it was rolled back:\n%s", watched)
	}
	d.run(anyCode, "health")
	if err := s.Redis["eu"].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.run(0, "rollout", "history")
	d.run(0, "rollout", "history", "bolder")

	d.says("A customer gets a limit of its own, and loses it again.")
	decided := func(most int64) func() bool {
		return func() bool {
			return limit(t, s.Nodes[3], limitRequest("user_7", 0, 100, time.Hour)).Limit == most
		}
	}
	d.run(0, "override", "set", "acme", "api", "user_7", "--limit", "3", "--duration", "1h", "--reason", "abuse, ticket 7")
	await.True(t, "a node decides by the override", decided(3))
	if set := d.run(0, "override", "set", "acme", "api", "user_7", "--candidate", "2", "--reason", "would 2 do?"); !strings.Contains(set, "limit 3, window 1h, candidate 2") {
		t.Errorf("what was not given is not kept:\n%s", set)
	}
	explain := func(identifier, limit string) []string {
		return []string{"explain", "acme", "api", identifier, "--limit", limit, "--duration", "1h", "--node", s.Nodes[0].URL(), "--node", s.Nodes[3].URL()}
	}
	if why := d.run(0, explain("user_7", "100")...); !strings.Contains(why, "of 3 per 1h") || !strings.Contains(why, "user_7") {
		t.Errorf("nothing says that the override applies:\n%s", why)
	}
	d.run(0, "override", "list", "acme", "api")
	d.run(0, "override", "delete", "acme", "api", "user_7", "--reason", "they have mended it", "--yes")
	await.True(t, "a node decides without the override", decided(100))

	d.says("A customer asks why nothing passes, and is let back in.")
	for range 12 {
		limit(t, s.Nodes[0], limitRequest("user_42", 1, 10, time.Hour))
	}
	d.until("denied", explain("user_42", "10")...)
	d.until("user_42", "keys", "top", "--workspace", "acme")
	d.run(0, "reset", "acme", "api", "user_42", "--reason", "support case 8", "--yes")
	await.True(t, "the customer passes", func() bool {
		return limit(t, s.Nodes[0], limitRequest("user_42", 0, 10, time.Hour)).Remaining == 10
	})
	d.run(0, "resets", "acme", "api")

	d.says("The table of verdicts is retired, but somebody wants it back.")
	d.run(0, "retire", "start", "--quiet", "100ms", "--soak", "1h", "--reason", "no longer written")
	d.until("awaiting approval", "retire", "status")
	d.run(0, "retire", "approve", "rename", "--reason", "nobody writes it")
	d.until("renamed", "retire", "status")
	d.run(0, "retire", "abort", "--reason", "a report reads it")
	d.until("ratelimit_blocklist, aborted", "retire", "status")
	d.run(0, "retire", "history")
	d.run(0, "retire", "history", "--events")

	d.says("The end of the day.")
	d.until("4 live", "fleet")
	d.run(anyCode, "health")
	audit := d.until("a report reads it", "audit", "--limit", "50")
	for _, reason := range d.reasons {
		if !strings.Contains(audit, reason) {
			t.Errorf("the audit log does not have %q", reason)
		}
	}
}

// onlyTheOrigin turns off the guardrails that a loaded machine could break by itself.
const onlyTheOrigin = `{"latency_us": {"off": true}, "errors_per_minute": {"off": true}, "rows_per_second": {"off": true}, "convergence_ms": {"off": true}, "nodes_lost_share": 1}`

const anyCode = -1

// day is a terminal with its transcript.
type day struct {
	t        *testing.T
	api, dir string
	text     bytes.Buffer
	reasons  []string
}

func (d *day) says(what string) { fmt.Fprintf(&d.text, "# %s\n\n", what) }

func (d *day) file(name, text string) {
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	fmt.Fprintf(&d.text, "$ cat %s\n%s\n\n", name, text)
}

// run runs weirctl, checks that people can read its output, and returns it.
func (d *day) run(code int, args ...string) string {
	d.t.Helper()
	out, got := d.call(args)
	d.record(args, out, got)
	if code != anyCode && got != code {
		d.t.Fatalf("weirctl %s: exit %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	if i := slices.Index(args, "--reason"); i >= 0 {
		d.reasons = append(d.reasons, args[i+1])
	}
	return out
}

// until runs weirctl until its output has the words, and records only the time of that run.
func (d *day) until(words string, args ...string) (out string) {
	d.t.Helper()
	code := 0
	defer func() { d.record(args, out, code) }()
	await.True(d.t, fmt.Sprintf("weirctl %s says %q", strings.Join(args, " "), words), func() bool {
		out, code = d.call(args)
		return strings.Contains(out, words)
	})
	return out
}

// well runs weirctl until it reports no problem, and records only the time of that run.
func (d *day) well(args ...string) {
	d.t.Helper()
	out, code := "", 0
	defer func() { d.record(args, out, code) }()
	await.True(d.t, fmt.Sprintf("weirctl %s exits with 0", strings.Join(args, " ")), func() bool {
		out, code = d.call(args)
		return code == 0
	})
}

func (d *day) call(args []string) (out string, code int) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), await.Patience)
	defer cancel()
	weirctl := exec.CommandContext(ctx, filepath.Join(bin, "weirctl"), args...)
	weirctl.Dir = d.dir
	weirctl.Env = append(os.Environ(), "WEIR_API="+d.api, "WEIR_ACTOR=ann")
	b, err := weirctl.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	return string(b), weirctl.ProcessState.ExitCode()
}

// raw matches text that only a program should have to read.
var raw = regexp.MustCompile(`\w+:\{|\{"|"\w+":|<nil>|%!|map\[|\bcode_|0x[0-9a-f]{6}|[^.](awaiting_|rolled_back)`)

func (d *day) record(args []string, out string, code int) {
	d.t.Helper()
	words := slices.Clone(args)
	for i, word := range words {
		if strings.ContainsAny(word, " *") {
			words[i] = fmt.Sprintf("%q", word)
		}
	}
	fmt.Fprintf(&d.text, "$ weirctl %s\n%s", strings.Join(words, " "), out)
	if code != 0 {
		fmt.Fprintf(&d.text, "(exit %d)\n", code)
	}
	d.text.WriteByte('\n')
	if strings.TrimSpace(out) == "" {
		d.t.Errorf("weirctl %s says nothing", strings.Join(args, " "))
	}
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 160 {
			d.t.Errorf("weirctl %s: a line of %d columns: %s", strings.Join(args, " "), n, line)
		}
		if found := raw.FindString(line); found != "" {
			d.t.Errorf("weirctl %s: %q is not for people: %s", strings.Join(args, " "), found, line)
		}
	}
}

// write saves the transcript for people.
func (d *day) write() {
	dir := filepath.Join("..", "..", "out")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "operators-day.txt"), d.text.Bytes(), 0o644)
	}
	if err != nil {
		d.t.Error(err)
	}
}
