package main

import (
	"fmt"
	"io"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type auditList struct {
	Limit     int32  `default:"50" help:"How many changes (1 to 500)."`
	Before    int64  `placeholder:"ID" help:"Only changes before this one: the next page."`
	By        string `placeholder:"NAME" help:"Only changes by this one."`
	Workspace string `placeholder:"NAME" help:"Only of overrides, settings and keys of this one."`
	Namespace string `placeholder:"NAME" help:"Only of this namespace of the workspace."`
	States    bool   `help:"Show how things were before and after."`
}

// Run lists changes.
func (a auditList) Run(c *call) error {
	answer, err := c.audit.ListAudit(c.ctx, connect.NewRequest(&controlv1.ListAuditRequest{BeforeId: a.Before, Limit: a.Limit, Actor: a.By, Workspace: a.Workspace, Namespace: a.Namespace}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) {
		entries := answer.Msg.GetEntries()
		if len(entries) == 0 {
			head(w, "no change is recorded")
			if to := answer.Msg.GetSearchedToId(); to > 0 {
				head(w, "It was looked for among those from %d on. Before them: --before %d", to, to)
			}
			return
		}
		if a.States {
			for _, e := range entries {
				head(w, "%d  %s  %s  %s  %s: %s\n  before  %s\n  after   %s", e.GetId(), moment(e.GetAtMs()), plain(e.GetActor()), plain(e.GetAction()), plain(e.GetSubject()), plain(e.GetReason()), orDash(e.GetBefore()), orDash(e.GetAfter()))
			}
		} else {
			t := newTable(w)
			t.row("ID", "WHEN", "WHO", "WHAT", "ON", "WHY")
			for _, e := range entries {
				t.long(56, fmt.Sprint(e.GetId()), moment(e.GetAtMs()), e.GetActor(), e.GetAction(), e.GetSubject(), e.GetReason())
			}
			t.flush()
		}
		if to := answer.Msg.GetSearchedToId(); to > 0 {
			head(w, "\nIt was looked for among those from %d on. Before them: --before %d", to, to)
		} else if len(entries) == int(a.Limit) {
			head(w, "\nOlder ones: weirctl audit --before %d", entries[len(entries)-1].GetId())
		}
	})
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return plain(text)
}
