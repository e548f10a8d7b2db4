package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/commandline"
)

// An error about a value names the flag that the value was given with, and not the field of a message.
func TestErrorsNameFlags(t *testing.T) {
	for _, tc := range []struct{ args, says string }{
		{"override set acme api u --limit=-1", "--limit is -1 (0 to 9007199254740991; 0 blocks)"},
		{"override set acme api u --limit=1 --duration=5ms", "--duration is 5ms (0s, or 1s to 8784h)"},
		{"override set acme api u", "nothing to change: set --limit, --unlimited, --duration, --candidate or --shadow"},
	} {
		w := newWorld(t)
		if code := w.run(t, append(strings.Fields(tc.args), "--reason", "x")...); code != exitUsage || !strings.Contains(w.stderr.String(), tc.says) || strings.Contains(w.stderr.String(), "_ms") {
			t.Errorf("%s: exit %d, %s; want %q", tc.args, code, w.stderr.String(), tc.says)
		}
	}
}

func TestFieldsAreRewrittenAsFlags(t *testing.T) {
	var c cli
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ command, is, want string }{
		{"reset a b c --reason x", "invalid: longest_window_ms is 5 (0, or 1000 to 31622400000)", "invalid: --longest-duration is 5ms (0s, or 1s to 8784h)"},
		{"token rotate ci --reason x", "invalid: overlap_ms is -1 (0 to 2592000000)", "invalid: --overlap is -1ms (0s to 720h)"},
		{"token rotate ci --reason x", "invalid: expires_in_ms is 1 (60000 to 316224000000, or 0)", "invalid: --expires-in is 1ms (1m to 87840h, or 0s)"},
		{"retire start --reason x", "invalid: batch_rows is 0 (1 to 50000)\ninvalid: quiet_ms is 1 (100 to 7776000000)", "invalid: --batch-rows is 0 (1 to 50000)\ninvalid: --quiet is 1ms (100ms to 2160h)"},
		{"retire start --reason x", "approvers is 11 (1 to 10)", "--approvers is 11 (1 to 10)"},
		{"tuning history", "invalid: before_version is -1 (0 for the newest, or a version)", "invalid: --before is -1 (0 for the newest, or a version)"},
		{"override set a b c --reason x", "workspace is empty", "workspace is empty"}, // an argument
		{"override set a b c --reason x", "what the limit is for, and window_counts", "what the limit is for, and window_counts"},
	} {
		command, err := parser.Parse(strings.Fields(tc.command))
		if err != nil {
			t.Fatal(err)
		}
		words := commandline.FlagWordsOf(command.Flags())
		if got := words.Rewrite(tc.is); got != tc.want {
			t.Errorf("%s:\n  %q, want\n  %q", tc.command, got, tc.want)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add("invalid: duration_ms is 5 (0, or 1000 to 31622400000)")
	f.Add("_ms is 99999999999999999999 (1 to 2)")
	var c cli
	parser, err := kong.New(&c)
	if err != nil {
		f.Fatal(err)
	}
	command, err := parser.Parse([]string{"override", "set", "a", "b", "c", "--reason", "x"})
	if err != nil {
		f.Fatal(err)
	}
	words := commandline.FlagWordsOf(command.Flags())
	f.Fuzz(func(t *testing.T, text string) {
		if got := words.Rewrite(text); len(got) > 40+8*len(text) {
			t.Errorf("%q: %q", text, got)
		}
	})
}
