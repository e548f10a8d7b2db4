package main

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
)

// A page of the log, and how to get the next one.
func TestAudit(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "audit"), exitOK, "no change is recorded\n")
	entry := controlplane.AuditEntry{By: controlplane.By{Actor: "ann", Reason: "deploy"}, Action: "cleanup.pause", Subject: "job cleanup", After: `{"running":false}`}
	w.audit = []controlplane.AuditRecord{{Row: 12, At: now, AuditEntry: entry}, {Row: 11, At: now, AuditEntry: entry}}
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
