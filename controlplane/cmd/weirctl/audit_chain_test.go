package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/auditchain"
)

// chained returns a log of n entries, each in the chain.
func chained(n int) (log audit.Links) {
	log.First = 1
	for i := range n {
		e := auditchain.Entry{ID: uint64(i + 1), AtMs: 7, Actor: "ann", Action: "a.b", Subject: "s\xff", Reason: "r", After: "{}"}
		l := log.End.Append(&e)
		log.Links = append(log.Links, audit.Link{Entry: e, Link: l})
		log.End = auditchain.End{ID: e.ID, Hash: l.Hash}
	}
	return log
}

// A log of several pages is verified, and a noted head shows that it was cut and taken back.
func TestAuditVerify(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "audit", "verify"), exitOK, "the chain has not begun: it begins with the next change\n")
	w.links = chained(450)
	noted := w.links.End.Hash.String()
	w.want(t, w.run(t, "audit", "verify"), exitOK, `
450 changes in the chain, all as they were written; the newest is 450
head `+noted+`
Keep the head outside the database, and pass it with --head next time.
`)
	w.want(t, w.run(t, "audit", "verify", "--from", "450", "--head", noted, "-o", "json"), exitOK, `
{
  "head": "`+noted+`",
  "lastId": 450,
  "linked": 1,
  "unlinked": 0
}
`)
	w.links = chained(449)
	wantBroken := func(says string, args ...string) {
		t.Helper()
		if code := w.run(t, append([]string{"audit", "verify"}, args...)...); code != exitFailure || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("exit %d, %s; want %q", code, w.stderr.String(), says)
		}
	}
	wantBroken("entry 449 or one before it was replaced, or newer ones were cut off: no entry has the hash "+noted, "--head", noted)
	w.links.Links[299].Reason = "other"
	wantBroken("the audit log was altered: entry 300 was changed")
	wantBroken("entry 300 was changed", "--from", "300")
	if code := w.run(t, "audit", "verify", "--from", "301"); code != exitOK {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	w.links.Links = slices.Delete(w.links.Links, 200, 201)
	wantBroken("entry 201 was deleted")
	wantBroken("entry 201 is missing: the next one is entry 202", "--from", "201")
	for says, args := range map[string][]string{"--head: hash is": {"--head", "abc"}, "--from is -1": {"--from=-1"}} {
		if code := w.run(t, append([]string{"audit", "verify"}, args...)...); code != exitUsage || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("exit %d, %s", code, w.stderr.String())
		}
	}
}

// An export is JSON lines that can be verified without the API, whole or from where it begins.
func TestAuditExport(t *testing.T) {
	w := newWorld(t)
	w.links = chained(450)
	noted := w.links.End.Hash.String()
	if code := w.run(t, "audit", "export"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	exported := w.stdout.String()
	lines := strings.SplitAfter(exported, "\n")
	want := "{\"entry\":{\"id\":\"1\",\"atMs\":\"7\",\"actor\":\"ann\",\"action\":\"a.b\",\"subject\":\"s\uFFFD\"," +
		`"reason":"r","after":"{}"},"subject":"c/8=","hash":"` +
		w.links.Links[0].Hash.String() + "\"}\n"
	if len(lines) != 451 || lines[0] != want {
		t.Fatalf("%d lines, the first is %s, want %s", len(lines)-1, lines[0], want)
	}
	file := filepath.Join(t.TempDir(), "log.jsonl")
	verify := func(text, says string, wantCode int, args ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code := w.run(t, append([]string{"--api", "http://127.0.0.1:1", "audit", "verify", "-f", file}, args...)...)
		if all := w.stdout.String() + w.stderr.String(); code != wantCode || !strings.Contains(all, says) {
			t.Errorf("exit %d, %s; want %q", code, all, says)
		}
	}
	verify(exported, "head "+noted, exitOK)
	verify(strings.Join(lines[400:], ""), "50 changes", exitOK, "--from", "401", "--head", noted)
	verify(strings.Join(lines[:449], ""), "no entry has the hash "+noted, exitFailure, "--head", noted)
	verify(strings.Replace(exported, `"ann"`, `"eve"`, 1), "entry 1 was changed", exitFailure)
	verify("{}\nno JSON\n", "line 2 of "+file, exitUsage)
	if code := w.run(t, "audit", "export", "-f", file); code != exitOK || w.stdout.Len() > 0 {
		t.Errorf("exit %d, %s%s", code, w.stdout.String(), w.stderr.String())
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != exported {
		t.Errorf("%v, %d bytes", err, len(text))
	}
	if code := w.run(t, "audit", "export", "--after", "449"); code != exitOK || w.stdout.String() != lines[449] {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}
