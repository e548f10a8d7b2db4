package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
)

// audit prints a page of the log and the command for the next page.
func TestAudit(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "audit"), exitOK, "no change is recorded\n")
	entry := audit.Entry{By: controlplane.By{Actor: "ann", Reason: "deploy"}, Action: "cleanup.pause", Subject: "job cleanup", After: `{"running":false}`}
	w.audit = []audit.Record{{Row: 12, At: now, Entry: entry}, {Row: 11, At: now, Entry: entry}}
	w.want(t, w.run(t, "audit", "--limit", "1"), exitOK, `
ID  WHEN                  WHO  WHAT           ON           WHY
12  2026-01-02 15:04:05Z  ann  cleanup.pause  job cleanup  deploy

Older ones: weirctl audit --before 12
`)
	w.want(t, w.run(t, "audit", "--before", "12", "--states"), exitOK, `
11  2026-01-02 15:04:05Z  ann  cleanup.pause  job cleanup: deploy
  before  -
  after   {"running":false}
`)
	if code := w.run(t, "audit", "--limit", "501"); code != exitUsage || !strings.Contains(w.stderr.String(), "1 to 500") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// Flags select changes by their properties and their time.
func TestAuditOfSome(t *testing.T) {
	w := newWorld(t)
	add := func(row int64, ago time.Duration, actor, action, subject string) {
		w.audit = append(w.audit, audit.Record{Row: row, At: now.Add(-ago), Entry: audit.Entry{By: controlplane.By{Actor: actor, Reason: "x"}, Action: action, Subject: subject}})
	}
	add(4, time.Minute, "ann", "override.set", "override acme/api/user_1")
	add(3, time.Hour, "ann", "override.delete", "override acme/api/user_2")
	add(2, 3*time.Hour, "bob", "namespace.set", "namespace acme/api")
	add(1, 48*time.Hour, "ann", "override.set", "override acme/api/user_1")
	for flags, want := range map[string]string{
		"--by ann":                 "4 3 1",
		"--action override":        "4 3 1",
		"--action override.set":    "4 1",
		"--on user_2":              "3",
		"--since 2h":               "4 3",
		"--until 2h":               "2 1",
		"--since 2026-01-02":       "4 3 2",
		"--until 2026-01-02T00:00": "1",
		"--since 4h --until 2026-01-02T15:00:00Z": "3 2",
		"--by eve": "",
	} {
		if code := w.run(t, append([]string{"audit"}, strings.Fields(flags)...)...); code != exitOK {
			t.Fatalf("%s: exit %d, %s", flags, code, w.stderr.String())
		}
		var rows []string
		for _, line := range strings.Split(w.stdout.String(), "\n") {
			if id, _, _ := strings.Cut(line, " "); id >= "1" && id <= "9" {
				rows = append(rows, id)
			}
		}
		if got := strings.Join(rows, " "); got != want {
			t.Errorf("%s: %q, want %q", flags, got, want)
		}
	}
	for flags, says := range map[string]string{
		"--since soon":          `--since: "soon" is not a time after 1970`,
		"--until 1969-01-01":    "--until: ",
		"--since 1h --until 2h": "until_ms is ",
		"--namespace api":       "workspace is empty",
	} {
		if code := w.run(t, append([]string{"audit"}, strings.Fields(flags)...)...); code != exitUsage || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("%s: exit %d, %s", flags, code, w.stderr.String())
		}
	}
}

// A page that ends early because its entries are large shows the command for the next page, as a full page does.
func TestAPageOfLargeEntries(t *testing.T) {
	w := newWorld(t)
	for row := int64(60); row > 0; row-- {
		w.audit = append(w.audit, audit.Record{Row: row, At: now, Entry: audit.Entry{
			By: controlplane.By{Actor: "ann", Reason: "x"}, Action: "a.b", Subject: "s", Before: strings.Repeat("x", audit.StateBytesMax), After: strings.Repeat("y", audit.StateBytesMax)}})
	}
	for _, args := range [][]string{{"audit"}, {"audit", "--by", "ann"}} {
		if code := w.run(t, args...); code != exitOK || !strings.HasSuffix(w.stdout.String(), "\nOlder ones: weirctl audit --before 27\n") {
			t.Errorf("exit %d, …%s%s", code, w.stdout.String()[max(0, w.stdout.Len()-200):], w.stderr.String())
		}
	}
}

// Any text is either a moment that the API accepts, or an error that quotes the text.
func FuzzWhen(f *testing.F) {
	for _, seed := range []string{"36h", "-1h", "2026-01-31", "2026-01-31T15:04", "2026-01-31 15:04:05Z", "2026-02-30", "9999h", "1969-12-31", "soon", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if at, err := parseWhen(text, now); err == nil && (at.UnixMilli() <= 0 || at.Year() > 9999) {
			t.Errorf("%q is %v", text, at)
		} else if err != nil && !strings.Contains(err.Error(), "not a time after 1970") {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// Control characters in texts of other people don't reach the terminal.
func TestTextOfOthersIsPrintedPlain(t *testing.T) {
	w := newWorld(t)
	entry := audit.Entry{By: controlplane.By{Actor: "\x1b[2Jann", Reason: "de\u202eploy"}, Action: "a\nb", Subject: "\x1b]0;x\a", After: "\x1b[31m"}
	w.audit = []audit.Record{{Row: 12, At: now, Entry: entry}}
	for _, args := range [][]string{{"audit"}, {"audit", "--states"}} {
		w.run(t, args...)
		if out := w.stdout.String(); strings.ContainsAny(out, "\x1b\a\u202e") || !strings.Contains(out, "?[2Jann") {
			t.Errorf("%v: %q", args, out)
		}
	}
}
