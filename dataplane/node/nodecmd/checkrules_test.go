package nodecmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check-rules reads rules as a node does and prints which rule matches a descriptor. It serves nothing.
func TestCheckRules(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.yaml", "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n")
	more := file("more.yaml", "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 0.5}}\n")
	for _, step := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{good}, 0, "ok: domains 1, rules 1\n", ""},
		{[]string{good, "--descriptor=user=42"}, 0, "user=42: 5 per 1m0s, by the rule in " + good + ", line 3, counted as \"user=42\"\n", ""},
		{[]string{good, "--descriptor=usr=42", "--descriptor=user=a%2Cb"}, 1, "usr=42: no rule matches it: nothing limits it\nuser=a%2Cb: 5 per", ""},
		{[]string{"--domain=egde", "--descriptor=user=42", good}, 1, `domain "egde" has no rules`, ""},
		{[]string{good, "--descriptor=user"}, 2, "", `weir-node: descriptor "user": want key=value`},
		{[]string{more}, 2, "", "weir-node: open rules: rules in " + more + `: line 3: shop.user: requests_per_unit is "0.5"`},
		{[]string{dir}, 2, "", "more.yaml: line 3"},
		{[]string{filepath.Join(dir, "none.yaml")}, 2, "", "none.yaml"},
		{nil, 2, "", "path"},
		{[]string{"--help"}, 0, "check-rules", ""},
	} {
		var stdout, stderr bytes.Buffer
		code := Main(t.Context(), append([]string{checkRulesCommand}, step.args...), &stdout, &stderr)
		if code != step.code || !strings.Contains(stdout.String(), step.stdout) || !strings.Contains(stderr.String(), step.stderr) || (stderr.Len() > 0) != (step.stderr != "") {
			t.Errorf("%q: exit code %d\n%s\n%s", step.args, code, &stdout, &stderr)
		}
	}
}

// A misspelt command is an error that suggests the right command.
func TestAMisspeltCommandIsAnErrorThatNamesTheRightOne(t *testing.T) {
	for _, command := range []string{"chek-rules", "check-rule", "Check-rules"} {
		var stdout, stderr bytes.Buffer
		if code := Main(t.Context(), []string{command, "rules.yaml"}, &stdout, &stderr); code != exitUsage ||
			!strings.Contains(stderr.String(), "did you mean check-rules?") {
			t.Errorf("%s: exit code %d, %s", command, code, &stderr)
		}
	}
}
