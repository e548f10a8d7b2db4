package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/strict"
)

type auditList struct {
	Limit     int32  `default:"50" help:"How many changes (1 to 500)."`
	Before    int64  `placeholder:"ID" help:"Only changes before this one: the next page."`
	By        string `placeholder:"NAME" help:"Only changes by this person or token."`
	Workspace string `placeholder:"NAME" help:"Only changes in this workspace."`
	Namespace string `placeholder:"NAME" help:"Only changes in this namespace of the workspace."`
	Action    string `placeholder:"WHAT" help:"Only this action (override.set), or all of a kind (override)."`
	On        string `placeholder:"TEXT" help:"Only changes of objects that have this text in their name."`
	Since     string `placeholder:"WHEN" help:"Only changes from this time on: 2026-01-31, 2026-01-31T15:04 (UTC), 2026-01-31T15:04:05+01:00, or 36h for that long ago."`
	Until     string `placeholder:"WHEN" help:"Only changes before this time, in the same forms."`
	States    bool   `help:"Show the state before and after each change."`
}

func (a auditList) Run(c *call) error {
	req := &controlv1.ListAuditRequest{
		BeforeId: a.Before, Limit: a.Limit, Actor: a.By, Workspace: a.Workspace, Namespace: a.Namespace, Action: a.Action,
		Subject: a.On,
	}
	for _, f := range []struct {
		flag, text string
		to         *int64
	}{{"--since", a.Since, &req.SinceMs}, {"--until", a.Until, &req.UntilMs}} {
		if f.text == "" {
			continue
		}
		at, err := parseWhen(f.text, c.now())
		if err != nil {
			return &hinted{fmt.Errorf("%s: %w", f.flag, err), exitUsage, "Correct it and try again; see weirctl audit --help."}
		}
		*f.to = at.UnixMilli()
	}
	return show(c, c.Audit.ListAudit, req, func(w io.Writer, answer *controlv1.ListAuditResponse) {
		entries := answer.GetEntries()
		if len(entries) == 0 {
			format.Head(w, "no change is recorded")
			if to := answer.GetSearchedToId(); to > 0 {
				format.Head(w, "Searched the changes from %d on. For earlier ones: --before %d", to, to)
			}
			return
		}
		if a.States {
			for _, e := range entries {
				format.Head(w, "%d  %s  %s  %s  %s: %s\n  before  %s\n  after   %s", e.GetId(), format.Moment(e.GetAtMs()),
					format.Plain(e.GetActor()), format.Plain(e.GetAction()), format.Plain(e.GetSubject()),
					format.Plain(e.GetReason()), format.OrNone(format.Plain(e.GetBefore())),
					format.OrNone(format.Plain(e.GetAfter())))
			}
		} else {
			t := format.NewTable(w)
			t.Row("ID", "WHEN", "WHO", "WHAT", "ON", "WHY")
			for _, e := range entries {
				t.Long(56, fmt.Sprint(e.GetId()), format.Moment(e.GetAtMs()), e.GetActor(), e.GetAction(), e.GetSubject(),
					e.GetReason())
			}
			t.Flush()
		}
		last := entries[len(entries)-1].GetId()
		if to := answer.GetSearchedToId(); to > 0 && to != last {
			format.Head(w, "\nSearched the changes from %d on. For earlier ones: --before %d", to, to)
		} else if to == last || len(entries) == int(a.Limit) { // a page ends early if its entries are large
			format.Head(w, "\nOlder ones: weirctl audit --before %d", last)
		}
	})
}

// whenForms are the formats in which people can write moments. Moments without a zone are in UTC, as in all output of
// weirctl.
var whenForms = []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339, "2006-01-02 15:04",
	"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"}

// parseWhen reads a moment after 1970, or a duration before now.
func parseWhen(text string, now time.Time) (at time.Time, err error) {
	ago, err := strict.Duration("time", text, 0, math.MaxInt64)
	if err == nil {
		at = now.Add(-ago)
	}
	for _, form := range whenForms {
		if moment, err := time.Parse(form, text); err == nil {
			at = moment
		}
	}
	if at.UnixMilli() <= 0 {
		return at, fmt.Errorf("%q is not a time after 1970, want one such as 2026-01-31T15:04, or 36h for that long ago",
			text)
	}
	return at, nil
}
