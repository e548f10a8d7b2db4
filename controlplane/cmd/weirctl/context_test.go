package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/files"
)

// A file holds several fleets, and one of them is current. It stores and shows where a token is, never the token.
func TestContexts(t *testing.T) {
	w := newWorld(t)
	file := os.Getenv("WEIR_CONTEXTS")
	w.want(t, w.runAnywhere(t, "context", "list"), exitOK, "there is no context yet: see weirctl context set --help\n")
	token := secretFile(t, "weir_s3cret")
	if code := w.run(t, "context", "set", "eu", "--token-file", token); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	t.Setenv("US_TOKEN", "weir_s3cret")
	if code := w.runAnywhere(t, "context", "set", "us", "--api", "http://us:7080", "--token-env", "US_TOKEN"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	const list = "CURRENT  NAME  API"
	if w.runAnywhere(t, "context", "list"); !strings.HasPrefix(w.stdout.String(), list) ||
		!strings.Contains(w.stdout.String(), "\n*        eu ") || !strings.Contains(w.stdout.String(), "variable US_TOKEN") {
		t.Errorf("%s", w.stdout.String())
	}
	w.want(t, w.runAnywhere(t, "context", "use", "us", "-o", "yaml", "--dry-run"), exitOK, `
---
current: us
contexts:
  - name: eu
    api: `+w.url+`
    tokenFile: `+token+`
  - name: us
    api: http://us:7080
    tokenEnv: US_TOKEN
`)
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "current: eu") || strings.Contains(string(text), "s3cret") {
		t.Errorf("%v %s", err, text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if code := w.runAnywhere(t, "context", "delete", "eu"); code != exitOK || strings.Contains(w.stdout.String(), "eu ") {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// context set changes the values that flags set and keeps the others. A context has its token in a single place.
func TestContextSetKeepsTheRest(t *testing.T) {
	w := newWorld(t)
	for _, line := range []string{
		"set eu --api https://eu:1 --ca /ca.pem --token-file /token", "set eu --api https://eu:2 --token-env EU_TOKEN",
	} {
		if code := w.runAnywhere(t, append([]string{"context"}, strings.Fields(line)...)...); code != exitOK {
			t.Fatalf("%s: exit %d, %s", line, code, w.stderr.String())
		}
	}
	w.want(t, w.runAnywhere(t, "context", "list", "-o", "json"), exitOK, `
{
  "current": "eu",
  "contexts": [
    {
      "name": "eu",
      "api": "https://eu:2",
      "ca": "/ca.pem",
      "tokenEnv": "EU_TOKEN"
    }
  ]
}
`)
}

// The context is the value of --context, or else of WEIR_CONTEXT, or else the current context. With only --api there is
// no context, so that a fleet's token is not sent to another fleet.
func TestCallsInAContext(t *testing.T) {
	w := newGuardedWorld(t)
	w.shelf.secret = "weir_s3cret"
	w.run(t, "context", "set", "eu", "--token-file", secretFile(t, "weir_s3cret\n"))
	w.run(t, "context", "set", "by-env", "--token-env", "EU_TOKEN")
	w.run(t, "context", "set", "none")
	t.Setenv("EU_TOKEN", "weir_s3cret")
	for name, tc := range map[string]struct {
		args    string
		context string
		code    int
		says    string
	}{
		"the current one":       {"fleet", "", exitOK, ""},
		"of the environment":    {"fleet", "none", exitFailure, "requires a token"},
		"a flag is stronger":    {"fleet --context by-env", "none", exitOK, ""},
		"one that is not there": {"fleet --context explode", "", exitUsage, `there is no context "explode"`},
		"an API without one":    {"fleet --api " + w.url, "", exitFailure, "requires a token"},
		"an API and one":        {"fleet --context eu --api " + w.url, "", exitOK, ""},
		"its API, other token":  {"fleet --token-file /does/not/exist", "", exitUsage, "/does/not/exist"},
		"no call, no context":   {"version --context explode", "", exitOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("WEIR_CONTEXT", tc.context)
			code := w.runAnywhere(t, strings.Fields(tc.args)...)
			if code != tc.code || !strings.Contains(w.stderr.String(), tc.says) {
				t.Errorf("exit %d, %s", code, w.stderr.String())
			}
		})
	}
	t.Setenv("EU_TOKEN", "")
	t.Setenv("WEIR_TOKEN", "weir_s3cret")
	if code := w.runAnywhere(t, "fleet", "--context", "by-env"); code != exitUsage || !strings.Contains(w.stderr.String(), "EU_TOKEN") {
		t.Errorf("a variable that is not set: exit %d, %s", code, w.stderr.String())
	}
}

// A malformed file is an error that describes the problem. A name that is not in the file is an error, too.
func TestContextsRefuse(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		text string
		mode os.FileMode
		args string
		says string
	}{
		"a token in it":       {"contexts: [{name: a, api: 'http://a', token: weir_s3cret}]", 0o600, "list", "field token not found"},
		"others may write it": {"contexts: []", 0o622, "list", "chmod 600"},
		"two documents":       {"contexts: []\n---\ncontexts: [{name: a, api: 'http://a'}]", 0o600, "list", "more than one document"},
		"one twice":           {"contexts: [{name: a, api: 'http://a'}, {name: a, api: 'http://b'}]", 0o600, "list", "context a appears twice"},
		"no API":              {"contexts: [{name: a}]", 0o600, "list", "context a: --api is"},
		"no name":             {"contexts: []", 0o600, "set ../a --api http://a", `a context's name is "../a"`},
		"no URL":              {"contexts: []", 0o600, "set a --api a:7080", "want http://host:port"},
		"a URL with a query":  {"contexts: []", 0o600, "set a --api http://a:7080?x=1", "--api has a query or a fragment"},
		"an API is missing":   {"contexts: []", 0o600, "set a", "--api is missing"},
		"two places":          {"contexts: []", 0o600, "set a --api http://a --token-file x --token-env Y", "set only one"},
		"not there":           {"contexts: []", 0o600, "use a", `there is no context "a"`},
		"not there any more":  {"contexts: []", 0o600, "delete a", `there is no context "a"`},
		"too long":            {"#" + strings.Repeat("x", files.BytesMax), 0o600, "list", "more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "contexts.yaml")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, tc.mode); err != nil {
				t.Fatal(err)
			}
			code := w.runAnywhere(t, append([]string{"--contexts", file, "context"}, strings.Fields(tc.args)...)...)
			if code != exitUsage || !strings.Contains(w.stderr.String(), tc.says) || strings.Contains(w.stderr.String(), "s3cret") {
				t.Errorf("exit %d, %s", code, w.stderr.String())
			}
		})
	}
}

func secretFile(t *testing.T, secret string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
