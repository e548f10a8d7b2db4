package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/manual"
)

// "With --json the answer is the API's own": every command, called as the README has it,
// prints one JSON document and nothing else.
func TestEveryCommandHasJSON(t *testing.T) {
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
		if examples[name] == nil {
			examples[name] = slices.DeleteFunc(example.Args(), func(word string) bool { return word == "--watch" })
		}
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("new.json", []byte(tuned(t, "floor=0.3")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("settings.yaml", []byte(filled), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, leaf := range newParser(t).Model.Leaves(true) {
		name := strings.Join(named(leaf), " ")
		if name == "completion" { // a script has no other form
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.health.Overall = controlplane.SeverityOK
			run := func(line string) {
				if code := w.run(t, strings.Fields(line)...); code != exitOK {
					t.Fatalf("%s: exit %d, %s", line, code, w.stderr.String())
				}
			}
			if leaf.Parent.Name == "rollout" && name != "rollout start" {
				run("rollout start --id r1 --tuning new.json --stage all:approval --reason x")
			}
			switch name {
			case "rollout resume":
				run("rollout pause r1 --reason x")
			case "rollout rollback":
				w.rollouts.phases = []controlplane.RolloutPhase{controlplane.RolloutDone, controlplane.RolloutDone}
			case "retire status", "retire approve", "retire abort", "retire history":
				run("retire start --reason x")
			case "explain":
				t.Setenv("WEIR_NODE", (&oneNode{answer: explained()}).start(t))
			}
			args := slices.DeleteFunc(slices.Clone(examples[name]), func(word string) bool { return strings.HasPrefix(word, "http") })
			args = slices.DeleteFunc(args, func(word string) bool {
				return slices.Contains([]string{"--api", "--node", "--ca", "--token-file", "--cert", "--key"}, word) || strings.HasSuffix(word, ".pem") || strings.HasSuffix(word, ".key") || strings.HasPrefix(word, "/etc/")
			})
			code := w.run(t, append(args, "--json")...)
			decoder := json.NewDecoder(&w.stdout)
			var document map[string]any
			if err := decoder.Decode(&document); err != nil || code != exitOK {
				t.Errorf("%v: exit %d, %v, %s", args, code, err, w.stderr.String())
			}
			if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
				t.Errorf("there is more than one document, or something else: %v", err)
			}
		})
	}
}

// Errors go to stderr, each with what to do next: that is the last line.
func TestErrorsSayWhatToDoNext(t *testing.T) {
	next := regexp.MustCompile(`^(See |Set |Use |Correct|Name |Start |The API at .* cannot be reached: start|Either .* correct|weir-control itself answers; |It was not done. See |Nothing has changed. See |What was asked for may still happen: see |The cause is in )`)
	for name, tc := range map[string]struct {
		guarded bool
		token   string
		args    string
		code    int
		says    string
	}{
		"no server":            {false, "", "fleet --api http://127.0.0.1:1", exitUnreachable, "refused"},
		"not a URL":            {false, "", "fleet --api 127.0.0.1:7080", exitUsage, "--api is 127.0.0.1:7080, want http://host:port"},
		"no token":             {true, "", "fleet", exitFailure, "asks for a token"},
		"wrong token":          {true, "weir_other", "fleet", exitFailure, ""},
		"role too low":         {true, "weir_s3cret", "token list", exitFailure, "this takes the role admin"},
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
			if err := os.WriteFile("new.json", []byte(tuned(t)), 0o600); err != nil {
				t.Fatal(err)
			}
			w := newWorldThat(t, tc.guarded)
			w.shelf.secret = "weir_s3cret"
			if !tc.guarded && strings.Contains(tc.args, " r1 ") {
				if code := w.run(t, "rollout", "start", "--id", "r1", "--tuning", "new.json", "--stage", "all", "--reason", "x"); code != exitOK {
					t.Fatal(w.stderr.String())
				}
				w.rollouts.list[0].Phase = controlplane.RolloutDone
			}
			t.Setenv("WEIR_TOKEN", tc.token)
			code := w.run(t, strings.Fields(tc.args)...)
			lines := strings.Split(strings.TrimSpace(w.stderr.String()), "\n")
			if i := slices.Index(lines, "  nothing changes"); i >= 0 {
				lines = lines[i+1:] // what was shown before it was refused
			}
			if last := lines[len(lines)-1]; code != tc.code || w.stdout.Len() > 0 || len(lines) != 2 || !next.MatchString(last) || !strings.HasPrefix(lines[0], "weirctl: ") || !strings.Contains(lines[0], tc.says) {
				t.Errorf("exit %d, want %d, %q\n%s", code, tc.code, w.stdout.String(), w.stderr.String())
			}
		})
	}
}
