package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/window"
)

func TestKeysTop(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "keys", "top"), exitOK, "no keys; 0 nodes reported\n")
	w.top = limits.TopKeys{
		Reports: limits.Reports{Now: now, Nodes: 3, Unreadable: 1, Truncated: true, Oldest: 12 * time.Second}, Total: 40_000,
		Keys: []limits.TopKey{
			{Workspace: "acme", Namespace: "api", Identifier: "user_42", DurationMs: 60_000, Limit: 10_000, Count: 9_001,
				Regions: []limits.TopKeyRegion{{Region: "eu", Count: 9_000}, {Region: "us", Count: 1}}},
			{Workspace: "acme", Namespace: "login", Identifier: "a\x1b[2J", DurationMs: 1000, Limit: -1, Count: 20, More: 5},
		},
	}
	w.want(t, w.run(t, "keys", "top", "--workspace=acme", "--limit=2"), exitOK, `
WORKSPACE  NAMESPACE  IDENTIFIER  COST        SHARE   LIMIT          REGIONS
acme       api        user_42     9,001       22.5 %  10,000 per 1m  eu 9,000, us 1
acme       login      a?[2J       20 (to 25)  0.1 %   unknown        -

shares are of all that 3 nodes reported, up to 12s ago
the reports of 1 node could not be read, in whole or in part
the fleet has more nodes than one answer covers: these reported last
`)
	if want := (limits.TopQuery{Workspace: "acme", Limit: 2}); w.topQuery != want {
		t.Errorf("asked for %+v, want %+v", w.topQuery, want)
	}
	w.run(t, "keys", "top", "--denied", "--namespace=api")
	if want := (limits.TopQuery{Namespace: "api", Denied: true, Limit: 20}); w.topQuery != want {
		t.Errorf("asked for %+v, want %+v", w.topQuery, want)
	}
	if code := w.run(t, "keys", "top", "--denied", "--hot"); code != exitUsage {
		t.Errorf("hot and denied: exit %d", code)
	}
}

// keys show prints a key as regions have stored it: two cells with their parts. Nodes' reports determine whether a cost
// passes; without reports the result is unknown.
func TestKeysShow(t *testing.T) {
	w := newWorld(t)
	w.key = limits.KeyReport{Now: now}
	w.want(t, w.run(t, "keys", "show", "acme", "api", "user_42"), exitOK, `
no region has stored any count of it lately

These are the counts that regions have stored; weirctl explain shows a node's counts.
`)
	if want := (limits.KeyQuery{Workspace: "acme", Namespace: "api", Identifier: "user_42", Cost: 1}); w.keyQuery != want {
		t.Errorf("asked for %+v, want %+v", w.keyQuery, want)
	}
	part := func(region string, count int64, ago time.Duration) limits.KeyPart {
		return limits.KeyPart{Region: region, Count: count, UpdatedAt: now.Add(-ago)}
	}
	start := now.Truncate(time.Minute).UnixMilli()
	w.key = limits.KeyReport{
		Now:      now,
		Override: &limits.Override{Pattern: "user_*", Limit: 100, DurationMs: 60_000},
		Reset:    &limits.Reset{Generation: 2, SetAt: now.Add(-time.Hour)},
		Windows: []limits.KeyWindow{
			{
				DurationMs: 60_000, Weight: 0.25, Effective: 102, Limit: new(int64(100)),
				Current:  limits.KeyCell{StartMs: start, Count: 90, Parts: []limits.KeyPart{part("eu", 60, 4*time.Second), part("us", 30, 2*time.Second)}},
				Previous: limits.KeyCell{StartMs: start - 60_000, Count: 50, Parts: []limits.KeyPart{{Region: "eu", Count: 50}}},
			},
			{
				Mode: window.Estimate, DurationMs: 1000, Weight: 1,
				Current: limits.KeyCell{StartMs: start}, Previous: limits.KeyCell{StartMs: start - 1000},
			},
		},
	}
	w.want(t, w.run(t, "keys", "show", "acme", "api", "user_42", "--limit=100", "--cost=5"), exitOK, `
override "user_*": 100 in 1m
reset 2026-01-02 14:04:05Z: earlier counts are forgotten
1m: regions have stored 102, 90 + 50 x 0.250
  of 100: it is unknown whether a cost of 5 passes, because no node has reported the key lately
  CELL      FROM                  REGION  COUNT  WRITTEN
  current   2026-01-02 15:04:00Z  eu      60     4s ago
  current   2026-01-02 15:04:00Z  us      30     2s ago
  previous  2026-01-02 15:03:00Z  eu      50     -
1s (estimate): regions have stored 0, 0 + 0 x 1.000
  the limit is unknown here: set --limit
  CELL      FROM                  REGION  COUNT  WRITTEN
  current   2026-01-02 15:04:00Z  -       0      -
  previous  2026-01-02 15:03:59Z  -       0      -

These are the counts that regions have stored; weirctl explain shows a node's counts.
`)
	if want := (limits.KeyQuery{Workspace: "acme", Namespace: "api", Identifier: "user_42", Limit: 100, Cost: 5}); w.keyQuery != want {
		t.Errorf("asked for %+v, want %+v", w.keyQuery, want)
	}
	w.top = limits.TopKeys{Reports: limits.Reports{Now: now, Nodes: 1}, Keys: []limits.TopKey{
		{Workspace: "acme", Namespace: "api", Identifier: "user_42", DurationMs: 60_000, Limit: 100, Count: 97, ReportedAt: now},
		{Workspace: "acme", Namespace: "api", Identifier: "user_43", DurationMs: 1000, Limit: 9, Count: 9, ReportedAt: now},
	}}
	for cost, says := range map[string]string{
		"3": "nodes last reported 97 of 100: by that a cost of 3 passes\n", "4": "by that a cost of 4 is denied\n",
		"101": "a cost of 101 never passes a limit of 100\n",
	} {
		if code := w.run(t, "keys", "show", "acme", "api", "user_42", "--cost="+cost); code != exitOK || !strings.Contains(w.stdout.String(), says) {
			t.Errorf("a cost of %s: exit %d, %s, want %q", cost, code, w.stdout.String(), says)
		}
	}
	w.key.Shadow = true
	for cost, says := range map[string]string{
		"3": "nodes last reported 97 of 100: by that a cost of 3 passes\n", "4": "by that a cost of 4 is over the limit, and passes in shadow mode\n",
		"101": "a cost of 101 is more than the limit of 100, and passes in shadow mode\n", "7": "a cost of 7 passes in shadow mode; the limit is unknown here: set --limit\n",
		"8": "the namespace is in shadow mode: every request passes\n",
	} {
		if code := w.run(t, "keys", "show", "acme", "api", "user_42", "--cost="+cost); code != exitOK || !strings.Contains(w.stdout.String(), says) {
			t.Errorf("a cost of %s in shadow mode: exit %d, %s, want %q", cost, code, w.stdout.String(), says)
		}
	}
	w.key.Override.Shadow = true
	if code := w.run(t, "keys", "show", "acme", "api", "user_42"); code != exitOK || !strings.Contains(w.stdout.String(), "the override is in shadow mode: every request passes\n") {
		t.Errorf("the override in shadow mode: exit %d, %s", code, w.stdout.String())
	}
	if code := w.run(t, "keys", "show", "acme", "api", "user_42", "--cost=4", "-o", "json"); code != exitOK || strings.Contains(w.stdout.String(), "KEY_VERDICT_DENIED") ||
		!strings.Contains(w.stdout.String(), `"KEY_VERDICT_PASSES"`) || !strings.Contains(w.stdout.String(), `"shadow"`) {
		t.Errorf("in shadow mode: exit %d: %s", code, w.stdout.String())
	}
	w.key.Shadow, w.key.Override.Shadow = false, false
	// Programs get the same verdict, and no figure that is computed from stored counts only.
	if code := w.run(t, "keys", "show", "acme", "api", "user_42", "--cost=4", "-o", "json"); code != exitOK ||
		!strings.Contains(w.stdout.String(), `"KEY_VERDICT_DENIED"`) || !strings.Contains(w.stdout.String(), `"KEY_VERDICT_UNKNOWN"`) ||
		strings.Contains(w.stdout.String(), "remaining") || strings.Contains(w.stdout.String(), "passes_at") {
		t.Errorf("exit %d: %s", code, w.stdout.String())
	}
	for flag, says := range map[string]string{
		"--cost=0":                "--cost is 0 (1 to 9007199254740991)",
		"--cost=9007199254740992": "--cost is 9007199254740992 (1 to 9007199254740991)",
		"--limit=0":               "--limit is 0 (1 to 9007199254740991)",
		"--limit=-1":              "--limit is -1 (1 to 9007199254740991)",
	} {
		if code := w.run(t, "keys", "show", "acme", "api", "user_42", flag); code != exitUsage || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("%s: exit %d, %s", flag, code, w.stderr.String())
		}
	}
}

// keys held prints holders and times. Characters in a holder's label that could control the terminal are replaced.
func TestKeysHeld(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "keys", "held"), exitOK, "nothing is held; 0 nodes reported\n")
	w.held = limits.HeldReport{Reports: limits.Reports{Now: now, Nodes: 2, Oldest: 3 * time.Second}, Held: []limits.Held{
		{Kind: "lease", Workspace: "acme", Namespace: "exports", Identifier: "org_7", Holder: "job\x1b[2J", Region: "eu", Node: "eu-1",
			SinceMs: now.Add(-time.Hour).UnixMilli(), Amount: 1},
		{Kind: "reservation", Workspace: "acme", Namespace: "tokens", Identifier: "org_7", Region: "us", Node: "us-1",
			SinceMs: now.Add(-time.Minute).UnixMilli(), EndsMs: now.Add(30 * time.Second).UnixMilli(), Amount: 4_000},
	}}
	w.want(t, w.run(t, "keys", "held", "--workspace=acme", "--identifier=org_7", "--limit=2"), exitOK, `
WORKSPACE  NAMESPACE  IDENTIFIER  WHAT         AMOUNT  HOLDER   REGION  NODE  FOR  ENDS IN
acme       exports    org_7       lease        1       job?[2J  eu      eu-1  1h   -
acme       tokens     org_7       reservation  4,000   -        us      us-1  1m   30s

as 2 nodes reported, up to 3s ago; each reports its oldest leases and reservations
`)
	if want := (limits.TopQuery{Workspace: "acme", Identifier: "org_7", Limit: 2}); w.heldQuery != want {
		t.Errorf("asked for %+v, want %+v", w.heldQuery, want)
	}
}

// keys list prints a page of a namespace's keys, and how to get the next.
func TestKeysList(t *testing.T) {
	w := newWorld(t)
	w.keys = []limits.KeyPage{{Now: now}}
	w.want(t, w.run(t, "keys", "list", "acme", "api"), exitOK, "regions have stored no counts of such keys lately; they store counts from half of a limit on\n")
	start := now.Truncate(time.Minute).UnixMilli()
	minute := func(count int64, limit *int64) limits.KeyWindow {
		return limits.KeyWindow{DurationMs: 60_000, Effective: count, Limit: limit, Current: limits.KeyCell{StartMs: start, Count: count}}
	}
	w.keys = []limits.KeyPage{{Now: now, Next: "user_4", ReportsErr: errors.New("down"), Keys: []limits.KeyListed{
		{Identifier: "a\x1b[2J", KeyReport: limits.KeyReport{Windows: []limits.KeyWindow{minute(9_001, nil)}, Truncated: true}},
		{Identifier: "user_1", KeyReport: limits.KeyReport{Override: &limits.Override{Pattern: "user_*"},
			Windows: []limits.KeyWindow{minute(5, new(int64(5))), {Mode: window.Estimate, DurationMs: 1000, Effective: 1, Limit: new(int64(9))}}}},
		{Identifier: "user_4", KeyReport: limits.KeyReport{Override: &limits.Override{Pattern: "user_4"}, Windows: []limits.KeyWindow{minute(5, new(int64(0)))}}},
	}}}
	w.want(t, w.run(t, "keys", "list", "acme", "api", "--limit=3"), exitOK, `
IDENTIFIER  WINDOW         COUNT  LIMIT    OVERRIDE  PASSES
a?[2J       1m             9,001  unknown  -         unknown
user_1      1m             5      5        user_*    in 55s
user_1      1s (estimate)  1      9        user_*    now
user_4      1m             5      0        user_4    never

These are the counts that regions have stored: from half of a limit on, in steps of a quarter of it.
Some keys have more counts than one answer covers: the sums may be too low.
Limits without an override are unknown, because the reports of nodes could not be read: down

There are more: --after "user_4"
`)
	w.keys = []limits.KeyPage{{Now: now, Keys: []limits.KeyListed{
		{Identifier: "user_1", KeyReport: limits.KeyReport{Shadow: true, Override: &limits.Override{Pattern: "user_*", Shadow: true},
			Windows: []limits.KeyWindow{minute(9, new(int64(5))), minute(9, nil), minute(9, new(int64(0)))}}},
	}}}
	w.want(t, w.run(t, "keys", "list", "acme", "api"), exitOK, `
IDENTIFIER  WINDOW  COUNT  LIMIT    OVERRIDE  PASSES
user_1      1m      9      5        user_*    now (shadow)
user_1      1m      9      unknown  user_*    now (shadow)
user_1      1m      9      0        user_*    now (shadow)

These are the counts that regions have stored: from half of a limit on, in steps of a quarter of it.
`)
	w.keysQueries = nil
	w.run(t, "keys", "list", "acme", "api", "--prefix=user", "--after=user_4")
	if want := (limits.KeysQuery{Workspace: "acme", Namespace: "api", Prefix: "user", After: "user_4", Limit: 50}); w.keysQueries[0] != want {
		t.Errorf("asked for %+v, want %+v", w.keysQueries[0], want)
	}
}

// keys export prints all pages, also of identifiers that are no text.
func TestKeysExport(t *testing.T) {
	w := newWorld(t)
	one := func(identifier, next string, limit *int64) limits.KeyPage {
		return limits.KeyPage{Now: time.UnixMilli(60_000), Next: next, Keys: []limits.KeyListed{{Identifier: identifier, KeyReport: limits.KeyReport{
			Windows: []limits.KeyWindow{{DurationMs: 1000, Effective: 5, Limit: limit}}}}}}
	}
	w.keys = []limits.KeyPage{one("a,\"b\"", "a\xff", new(int64(7))), one("a\xff", "c", nil), one("c", "", new(int64(0)))}
	w.keys[2].Keys[0].Shadow = true
	w.want(t, w.run(t, "keys", "export", "acme", "api", "--prefix=a"), exitOK, `{"workspace":"acme","namespace":"api","identifier":"a,\"b\"","mode":"exact","duration_ms":1000,"count":5,"limit":7,"free_at_ms":60000,"now_ms":60000}
{"workspace":"acme","namespace":"api","identifier":"a�","mode":"exact","duration_ms":1000,"count":5,"now_ms":60000}
{"workspace":"acme","namespace":"api","identifier":"c","mode":"exact","duration_ms":1000,"count":5,"limit":0,"shadow":true,"free_at_ms":60000,"now_ms":60000}
`)
	for i, after := range []string{"", "a\xff", "c"} {
		if want := (limits.KeysQuery{Workspace: "acme", Namespace: "api", Prefix: "a", After: after, Limit: limits.KeysMax}); w.keysQueries[i] != want {
			t.Errorf("asked for %+v, want %+v", w.keysQueries[i], want)
		}
	}
	w.keysQueries = nil
	w.want(t, w.run(t, "keys", "export", "acme", "api", "--format=csv"), exitOK, `workspace,namespace,identifier,mode,duration_ms,count,limit,override,shadow,free_at_ms,now_ms
acme,api,"a,""b""",exact,1000,5,7,,false,60000,60000
acme,api,a�,exact,1000,5,,,false,,60000
acme,api,c,exact,1000,5,0,,true,60000,60000
`)
	w.keys, w.keysQueries = []limits.KeyPage{{Now: now}}, nil
	w.want(t, w.run(t, "keys", "export", "acme", "api", "--format=csv"), exitOK, "workspace,namespace,identifier,mode,duration_ms,count,limit,override,shadow,free_at_ms,now_ms\n")
	if code := w.run(t, "keys", "export", "acme", "api", "--format=xml"); code != exitUsage {
		t.Errorf("another format: exit %d", code)
	}
}
