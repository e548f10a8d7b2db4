package rls

import (
	"path/filepath"
	"strings"
	"testing"
)

// Explain describes the rule of a descriptor, its limit and its place in the files, as `weir-node check-rules` prints
// it.
func TestRulesExplainADescriptor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, shop)
	source, err := OpenRules(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		domain, descriptor, want string
		matched                  bool
	}{
		{"", "plan=free", `10 per 1m0s, by the rule in ` + path + `, line 4, counted as "plan=free"`, true},
		{"shop", "plan=free,user=42", `2 per 1s`, true},
		{"shop", "path=/files/a%2Cb/raw", `3 per 168h0m0s, by the rule in ` + path + `, line 17, counted as "path=/files/*/raw"`, true},
		{"shop", "internal=x", "unlimited", true},
		{"shop", "soft=%FF", `1 per 1m0s, shadow_mode, by the rule in ` + path + `, line 26, counted as "soft=%FF"`, true},
		{"shop", "daily=", "quota_mode", true},
		{"shop", "pln=free", "no rule matches it: nothing limits it", false},
		{"shop", "plan=free,user=42,x=y", "no rule matches it", false},
		{"shpo", "plan=free", `domain "shpo" has no rules: nothing limits it`, false},
	} {
		words, matched, err := source.Explain(step.domain, step.descriptor)
		if err != nil || matched != step.matched || !strings.Contains(words, step.want) {
			t.Errorf("%s: %q, %v, %v, want %q", step.descriptor, words, matched, err, step.want)
		}
	}
	for descriptor, want := range map[string]string{"": "want key=value", "plan": "want key=value", "=x": "want key=value", "a=b,": "want key=value", "a=%": "two hexadecimal digits", "a=%1": "two hexadecimal digits", "a=%zz": "two hexadecimal digits"} {
		if _, _, err := source.Explain("", descriptor); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", descriptor, err, want)
		}
	}
	if n := source.Rules(); n != 10 {
		t.Errorf("%d rules, want 10", n)
	}
	if _, _, err := new(Source).Explain("", "a=b"); err == nil {
		t.Error("no rules at all have a domain")
	}
}

// A descriptor is read as its identifier is written.
func FuzzReadDescriptor(f *testing.F) {
	for _, s := range []string{"a=b", "a=b,c=d", "a=%FF%2C", "=", "a=%", "plan=free,user=a%2Cb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := readDescriptor(text)
		if err != nil {
			return
		}
		written := identifier(entries, nil)
		again, err := readDescriptor(written)
		if len(written) < 200 && (err != nil || identifier(again, nil) != written) {
			t.Errorf("%q is written as %q, and read as %v, %v", text, written, again, err)
		}
	})
}
