package main

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weirhq/weir/controlplane/limits"
)

// A command that cannot be undone describes the loss and waits for a yes. Without a terminal it requires --yes.
func TestConfirm(t *testing.T) {
	for _, tc := range []struct{ args, call, lost string }{
		{"override delete acme api user_*", "DeleteOverride", "override acme/api/user_*: limit 7, window 1m, shadow"},
		{"reset acme api user_42", "ResetKey", "every region's counts of acme/api/user_42"},
		{"token revoke ci", "RevokeToken", "token ci: calls with it are refused, and no other token gets its name"},
		{"retire approve drop", "ApproveDrop", "table ratelimit_blocklist, now ratelimit_blocklist_retired_20260102_150405, with 12,345 rows"},
	} {
		t.Run(tc.call, func(t *testing.T) {
			w := newWorld(t)
			w.shelf.override = limits.Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 7, DurationMs: 60_000, Shadow: true, UpdatedAt: now}
			w.run(t, "retire", "start", "--reason", "x")
			args := append(strings.Fields(tc.args), "--reason", "x")
			w.changes = nil
			for answer, code := range map[string]int{"": exitUsage, "n\n": exitFailure, "\n": exitFailure, "yeah\n": exitFailure, "y": exitFailure} {
				w.stdin = answer
				if got := w.run(t, args...); got != code || len(w.changes) > 0 || !strings.Contains(w.stderr.String(), tc.lost) || !strings.HasSuffix(w.stderr.String(), "Nothing has changed. --dry-run shows what would change; --yes confirms it.\n") {
					t.Errorf("%q: exit %d, %q, %s", answer, got, w.changes, w.stderr.String())
				}
			}
			w.stdin = "Y\n"
			if got := w.run(t, args...); got != exitOK || strings.Join(w.changes, " ") != tc.call || w.stderr.String() != "This cannot be undone ("+w.url+"):\n  "+tc.lost+"\nGo on? [y/N] " {
				t.Errorf("exit %d, %q, %s", got, w.changes, w.stderr.String())
			}
			w.changes, w.stdin = nil, ""
			if got := w.run(t, append(args, "-y")...); got != exitOK || strings.Join(w.changes, " ") != tc.call || strings.Contains(w.stderr.String(), tc.lost) {
				t.Errorf("exit %d, %q, %s", got, w.changes, w.stderr.String())
			}
		})
	}
}

// Names of RPCs show which calls cannot be undone. Each of these calls requires a confirmation.
func TestEveryLossIsConfirmed(t *testing.T) {
	found, asked := 0, 0
	for _, question := range questions {
		if question.why == undone {
			asked++
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("weir.control.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				name := string(methods.Get(j).Name())
				procedure := "/" + string(file.Services().Get(i).FullName()) + "/" + name
				lossy := strings.Contains(name, "Delete") || strings.Contains(name, "Revoke") || strings.Contains(name, "Drop") || strings.HasPrefix(name, "Reset")
				if (questions[procedure].why == undone) != lossy {
					t.Errorf("%s: asks %v", procedure, !lossy)
				}
				if lossy {
					found++
				}
			}
		}
		return true
	})
	if found != asked {
		t.Errorf("%d calls, %d of them there", asked, found)
	}
}

// Only the override that was shown is deleted.
func TestConfirmedOverrideIsTheOneThatWasShown(t *testing.T) {
	w := newWorld(t)
	w.shelf.override, w.stdin = limits.Override{Limit: 7, UpdatedAt: now}, "yes\n"
	if code := w.run(t, "override", "delete", "acme", "api", "user_*", "--reason", "x"); code != exitOK || w.shelf.seen == nil || *w.shelf.seen != now.UnixMilli() {
		t.Errorf("exit %d, %v, %s", code, w.shelf.seen, w.stderr.String())
	}
}

// apply requires one confirmation for all deletions, and none without deletions.
func TestApplyConfirmsOnce(t *testing.T) {
	w, d := newDrawerWorld(t)
	if code := w.run(t, "apply", "-f", path(t, filled), "--reason", "first"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	args := []string{"apply", "-f", path(t, "kind: weir-settings\nversion: 1\n"), "--prune", "--reason", "all"}
	if code := w.run(t, args...); code != exitUsage || len(d.overrides) != 2 || !strings.Contains(w.stderr.String(), "- override zeta/web/evil: ") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	w.stdin = "y\n"
	if code := w.run(t, args...); code != exitOK || len(d.overrides) != 0 || strings.Count(w.stderr.String(), "Go on?") != 1 {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// The null device is no terminal, nor is a file.
func TestIsTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	file, err := os.Create(t.TempDir() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if isTerminal(null) || isTerminal(file) {
		t.Error("a terminal")
	}
}
