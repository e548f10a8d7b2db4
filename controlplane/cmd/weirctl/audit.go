package main

import (
	"fmt"
	"io"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type auditList struct {
	Limit  int32 `default:"50" help:"How many changes (1 to 500)."`
	Before int64 `placeholder:"ID" help:"Only changes before this one: the next page."`
	States bool  `help:"Show how things were before and after."`
}

// Run lists changes.
func (a auditList) Run(c *call) error {
	answer, err := c.audit.ListAudit(c.ctx, connect.NewRequest(&controlv1.ListAuditRequest{BeforeId: a.Before, Limit: a.Limit}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) {
		entries := answer.Msg.GetEntries()
		if len(entries) == 0 {
			head(w, "no change is recorded")
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
		if len(entries) == int(a.Limit) {
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
