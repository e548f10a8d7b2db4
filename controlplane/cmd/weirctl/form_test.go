package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/manual"
)

// "-o json and -o yaml print the API's response": every command of the README prints one document and nothing else.
//
//weir:unraced
func TestEveryCommandHasEachForm(t *testing.T) {
	forEveryCommand(t, func(t *testing.T, leaf string, w *world, args []string) {
		if leaf == "completion" || leaf == "audit export" || leaf == "keys export" { // a script and JSON lines have no other format
			return
		}
		ready := w.prepare(t, leaf)
		for _, form := range []string{"json", "yaml"} {
			ready()
			code := w.run(t, append(args, "--yes", "-o", form)...)
			var document map[string]any
			decode := json.NewDecoder(&w.stdout).Decode
			if form == "yaml" {
				decode = yaml.NewDecoder(&w.stdout).Decode
			}
			if err := decode(&document); err != nil || code != exitOK {
				t.Errorf("%v -o %s: exit %d, %v, %s", args, form, code, err, w.stderr.String())
			}
			if err := decode(new(any)); !errors.Is(err, io.EOF) {
				t.Errorf("%v -o %s: there is more than one document, or something else: %v", args, form, err)
			}
		}
	})
}

// With --dry-run no command changes anything; each that does without it prints the call.
//
//weir:unraced
func TestEveryCommandHasDryRun(t *testing.T) {
	changing := 0
	forEveryCommand(t, func(t *testing.T, leaf string, w *world, args []string) {
		ready := w.prepare(t, leaf)
		ready()
		w.changes = nil
		if code := w.run(t, append(args, "--dry-run")...); code != exitOK || len(w.changes) > 0 {
			t.Errorf("%v --dry-run: exit %d, calls %q, %s", args, code, w.changes, w.stderr.String())
		}
		said := w.stdout.String()
		if code := w.run(t, append(args, "--yes")...); code != exitOK {
			t.Fatalf("%v: exit %d, %s", args, code, w.stderr.String())
		}
		if len(w.changes) == 0 {
			return
		}
		changing++
		if leaf != "apply" && !strings.HasPrefix(said, "would call "+w.changes[0]+":\n") ||
			!strings.HasSuffix(said, "--dry-run changes nothing\n") {
			t.Errorf("%v --dry-run does not print %q:\n%s", args, w.changes, said)
		}
	})
	if changing < 19 {
		t.Errorf("%d commands change something", changing)
	}
}

// forEveryCommand calls the function with the first example of each command in the README.
func forEveryCommand(t *testing.T, one func(t *testing.T, leaf string, w *world, args []string)) {
	t.Helper()
	examples := map[string][]string{}
	for _, example := range manual.Of(t, "weirctl") {
		if example.Mentioned || example.Page != "controlplane/cmd/weirctl/README.md" {
			continue
		}
		parsed, err := newParser(t).Parse(example.Args())
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Join(named(parsed.Selected()), " ")
		if examples[name] == nil && !slices.Contains(example.Args(), "--dry-run") {
			examples[name] = withoutOthers(example.Args())
		}
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"new.json": controltest.Document("floor=0.3"), "settings.yaml": filled} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, leaf := range newParser(t).Model.Leaves(true) {
		name := strings.Join(named(leaf), " ")
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.health.Overall = watch.SeverityOK
			one(t, name, w, examples[name])
		})
	}
}

// withoutOthers leaves out flags that name other servers and files, and --watch.
func withoutOthers(args []string) []string {
	flags := []string{"--watch", "--api", "--node", "--ca", "--token-file", "--cert", "--key"}
	return slices.DeleteFunc(slices.Clone(args), func(word string) bool {
		return slices.Contains(flags, word) || strings.HasPrefix(word, "http") || strings.HasPrefix(word, "/etc/") ||
			strings.HasSuffix(word, ".pem") || strings.HasSuffix(word, ".key")
	})
}

// prepare returns a function that must run before each call. It fills the world with data for the command.
func (w *world) prepare(t *testing.T, leaf string) (ready func()) {
	t.Helper()
	run := func(line string) {
		if code := w.run(t, strings.Fields(line)...); code != exitOK {
			t.Fatalf("%s: exit %d, %s", line, code, w.stderr.String())
		}
	}
	if leaf == "explain" {
		t.Setenv("WEIR_NODE", (&oneNode{answer: explained()}).start(t))
	}
	return func() {
		group, _, _ := strings.Cut(leaf, " ")
		w.rollouts, w.retirements = rollouts{}, retirements{}
		if group == "rollout" && leaf != "rollout start" {
			run("rollout start --id r1 --tuning new.json --stage all:approval --reason x")
		}
		switch leaf {
		case "context use", "context delete":
			run("context set prod")
			run("context set test")
		case "rollout resume":
			run("rollout pause r1 --reason x")
		case "rollout rollback":
			w.rollouts.phases = []rollout.Phase{rollout.Done, rollout.Done}
		case "retire status", "retire approve", "retire abort", "retire history":
			run("retire start --reason x")
		}
	}
}

// Errors go to stderr. The last line of an error is the next step.
func TestErrorsSayWhatToDoNext(t *testing.T) {
	next := regexp.MustCompile(`^(See |Set |Use |Correct|Name |Start |The API at .* cannot be reached: start|Either .* correct|weir-control itself answers; |The request was refused. See |Nothing has changed. See |What was asked for may still happen: see |The cause is in )`)
	for name, tc := range map[string]struct {
		guarded bool
		token   string
		args    string
		code    int
		says    string
	}{
		"no server":            {false, "", "fleet --api http://127.0.0.1:1", exitUnreachable, "refused"},
		"not a URL":            {false, "", "fleet --api 127.0.0.1:7080", exitUsage, "--api is 127.0.0.1:7080, want http://host:port"},
		"no token":             {true, "", "fleet", exitFailure, "requires a token"},
		"wrong token":          {true, "weir_other", "fleet", exitFailure, ""},
		"role too low":         {true, "weir_s3cret", "token list", exitFailure, "this requires the role admin"},
		"no such token file":   {false, "", "fleet --token-file /does/not/exist", exitUsage, "/does/not/exist"},
		"no such authorities":  {false, "", "fleet --ca /does/not/exist", exitUsage, "/does/not/exist"},
		"unknown rollout":      {false, "", "rollout status r9", exitFailure, "r9"},
		"never retired":        {false, "", "retire status", exitFailure, "never been retired"},
		"no such command":      {false, "", "rollout explode", exitUsage, "explode"},
		"no such flag":         {false, "", "fleet --explode", exitUsage, "--explode"},
		"no such value":        {false, "", "token create ci --role root --reason x", exitUsage, `"viewer","operator","admin"`},
		"a duration of words":  {false, "", "override set a b c --limit 1 --duration long --reason x", exitUsage, "--duration"},
		"out of bounds":        {false, "", "override set a b c --limit -1 --reason x", exitUsage, "limit"},
		"no such tuning file":  {false, "", "rollout start --tuning /does/not/exist --stage all --reason x", exitUsage, "/does/not/exist"},
		"a stage of nothing":   {false, "", "rollout start --tuning new.json --stage : --reason x", exitUsage, "stage"},
		"nothing to approve":   {false, "", "rollout approve r1 --stage 1 --reason x", exitFailure, "r1"},
		"what is over already": {false, "", "rollout pause r1 --reason x", exitFailure, "r1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("new.json", []byte(controltest.Document()), 0o600); err != nil {
				t.Fatal(err)
			}
			w := newWorldThat(t, tc.guarded)
			w.shelf.secret = "weir_s3cret"
			if !tc.guarded && strings.Contains(tc.args, " r1 ") {
				if code := w.run(t, "rollout", "start", "--id", "r1", "--tuning", "new.json", "--stage", "all", "--reason", "x"); code != exitOK {
					t.Fatal(w.stderr.String())
				}
				w.rollouts.list[0].Phase = rollout.Done
			}
			t.Setenv("WEIR_TOKEN", tc.token)
			code := w.run(t, strings.Fields(tc.args)...)
			lines := strings.Split(strings.TrimSpace(w.stderr.String()), "\n")
			if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "weirctl: ") }); i >= 0 {
				lines = lines[i:] // without the preview before the error
			}
			if last := lines[len(lines)-1]; code != tc.code || w.stdout.Len() > 0 || len(lines) != 2 || !next.MatchString(last) || !strings.HasPrefix(lines[0], "weirctl: ") || !strings.Contains(lines[0], tc.says) {
				t.Errorf("exit %d, want %d, %q\n%s", code, tc.code, w.stdout.String(), w.stderr.String())
			}
		})
	}
}

// In YAML fields keep their order, text that looks like a number stays text, and each document of --watch begins alike.
func TestYAML(t *testing.T) {
	w := newWorld(t)
	w.schedule.status = cleanup.Status{Running: true, Interval: time.Minute, NextAt: now}
	w.want(t, w.run(t, "cleanup", "status", "-o", "yaml"), exitOK, fmt.Sprintf(`
---
status:
  running: true
  intervalMs: "60000"
  nextAtMs: "%d"
  lagMs: "0"
  runsTotal: "0"
  rowsDeletedTotal: "0"
  pausedBy: ""
  pausedReason: ""
  history: []
  pausedAtMs: "0"
  errorsTotal: "0"
  deadNodesDeletedTotal: "0"
  partitionsProblem: ""
`, now.UnixMilli()))
	if code := w.run(t, "fleet", "-o", "xml"); code != exitUsage || !strings.Contains(w.stderr.String(), `"table","json","yaml"`) {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// --dry-run prints the fields that are set, and makes the reads that the command needs.
func TestDryRun(t *testing.T) {
	w := newWorld(t)
	args := []string{"override", "set", "acme", "api", "user_*", "--limit", "60", "--reason", "abuse", "--dry-run"}
	w.want(t, w.run(t, args...), exitOK, `
would call ChangeOverride:
  actor: os-user
  reason: abuse
  workspace: acme
  namespace: api
  pattern: user_*
  limit: "60"
--dry-run changes nothing
`)
	w.want(t, w.run(t, append(args, "-o", "json")...), exitOK, `
{
  "dryRun": {
    "call": "ChangeOverride",
    "request": {
      "actor": "os-user",
      "reason": "abuse",
      "workspace": "acme",
      "namespace": "api",
      "pattern": "user_*",
      "limit": "60"
    }
  }
}
`)
	if code := w.run(t, "rollout", "approve", "r1", "--stage", "1", "--reason", "x", "--dry-run"); code != exitFailure {
		t.Errorf("a rollout that is not there: exit %d, %s", code, w.stdout.String())
	}
}
