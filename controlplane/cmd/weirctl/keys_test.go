package main

import (
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
)

func TestKeysTop(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "keys", "top"), exitOK, "no keys; 0 nodes reported\n")
	w.top = controlplane.TopKeys{
		Now: now, Total: 40_000, Nodes: 3, Unreadable: 1, Truncated: true, Oldest: 12 * time.Second,
		Keys: []controlplane.TopKey{
			{Workspace: "acme", Namespace: "api", Identifier: "user_42", DurationMs: 60_000, Limit: 10_000, Count: 9_001,
				Regions: []controlplane.TopKeyRegion{{Region: "eu", Count: 9_000}, {Region: "us", Count: 1}}},
			{Workspace: "acme", Namespace: "login", Identifier: "a\x1b[2J", DurationMs: 1000, Limit: -1, Count: 20, More: 5},
		},
	}
	w.want(t, w.run(t, "keys", "top", "--workspace=acme", "--limit=2"), exitOK, `
WORKSPACE  NAMESPACE  IDENTIFIER  COST        SHARE   LIMIT          REGIONS
acme       api        user_42     9,001       22.5 %  10,000 per 1m  eu 9,000, us 1
acme       login      a?[2J       20 (to 25)  0.1 %   unknown        -

shares are of all that 3 nodes reported, up to 12s ago
the reports of 1 node could not be read
there are more nodes than one answer takes in; these are the ones last heard of
`)
	if want := (controlplane.TopQuery{Workspace: "acme", Limit: 2}); w.topQuery != want {
		t.Errorf("asked for %+v, want %+v", w.topQuery, want)
	}
	w.run(t, "keys", "top", "--denied", "--namespace=api")
	if want := (controlplane.TopQuery{Namespace: "api", Denied: true, Limit: 20}); w.topQuery != want {
		t.Errorf("asked for %+v, want %+v", w.topQuery, want)
	}
	if code := w.run(t, "keys", "top", "--denied", "--hot"); code != exitUsage {
		t.Errorf("hot and denied: exit %d", code)
	}
}
