package main

import (
	"fmt"
	"io"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/window"
)

type keysShow struct {
	Workspace  string `arg:"" help:"The key's workspace."`
	Namespace  string `arg:"" help:"Its namespace."`
	Identifier string `arg:"" help:"Its identifier."`
	Limit      *int64 `placeholder:"N" help:"The limit to judge by, from 1. Default: the override's, if one applies."`
	Cost       int64  `default:"1" help:"The cost of the request, from 1."`
}

// Run shows a key.
func (k keysShow) Run(c *call) error {
	ask := &controlv1.GetKeyRequest{Workspace: k.Workspace, Namespace: k.Namespace, Identifier: k.Identifier, Cost: k.Cost,
		Judge: true}
	if err := counted("--cost", k.Cost); err != nil {
		return err
	}
	if k.Limit != nil {
		if err := counted("--limit", *k.Limit); err != nil {
			return err
		}
		ask.Limit = *k.Limit
	}
	answer, err := c.keys.GetKey(c.ctx, connect.NewRequest(ask))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) { writeKey(w, answer.Msg, k.Cost) })
}

// counted refuses values that the API refuses, or takes for a flag that was left out.
func counted(flag string, n int64) error {
	if n < 1 || n > window.LimitMax {
		return &hinted{fmt.Errorf("%s is %d (1 to %d)", flag, n, int64(window.LimitMax)), exitUsage,
			"Correct it and try again; see weirctl keys show --help."}
	}
	return nil
}

func writeKey(w io.Writer, k *controlv1.GetKeyResponse, cost int64) {
	if o := k.GetOverride(); o != nil {
		duration := "the duration of the request"
		if o.GetDurationMs() > 0 {
			duration = span(o.GetDurationMs())
		}
		head(w, "override %q: %s in %s", plain(o.GetPattern()), digits(o.GetLimit()), duration)
	}
	if r := k.GetReset_(); r != nil {
		head(w, "reset %s: earlier counts are forgotten", moment(r.GetSetAtMs()))
	}
	for _, window := range k.GetWindows() {
		writeKeyWindow(w, window, k, cost)
	}
	if len(k.GetWindows()) == 0 {
		head(w, "no region has stored any count of it lately")
	}
	if k.GetTruncated() {
		head(w, "the key has more counts than one answer covers: the sums may be too low")
	}
	head(w, "\nThese counts are what regions have stored; weirctl explain shows what a node counts.")
}

// keyVerdict describes whether a request would pass a window.
func keyVerdict(k *controlv1.KeyWindow, problem string, cost int64) string {
	limit := digits(k.GetLimit())
	switch {
	case k.Limit == nil:
		return "no limit is known here: name one with --limit"
	case k.GetVerdict() == controlv1.KeyVerdict_KEY_VERDICT_NEVER_PASSES:
		return fmt.Sprintf("a cost of %s never passes a limit of %s", digits(cost), limit)
	case k.GetVerdict() == controlv1.KeyVerdict_KEY_VERDICT_PASSES:
		return fmt.Sprintf("nodes last reported %s of %s: by that a cost of %s passes", digits(k.GetReported()), limit,
			digits(cost))
	case k.GetVerdict() == controlv1.KeyVerdict_KEY_VERDICT_DENIED:
		return fmt.Sprintf("nodes last reported %s of %s: by that a cost of %s is denied", digits(k.GetReported()), limit,
			digits(cost))
	}
	why := "no node has reported the key lately"
	if problem != "" {
		why = "the reports of nodes could not be read: " + plain(problem)
	}
	return fmt.Sprintf("of %s: it is not known whether a cost of %s passes, because %s", limit, digits(cost), why)
}

func writeKeyWindow(w io.Writer, k *controlv1.KeyWindow, of *controlv1.GetKeyResponse, cost int64) {
	mode := ""
	if k.GetMode() != "exact" {
		mode = " (" + k.GetMode() + ")"
	}
	head(w, "%s%s: regions have stored %s, %s + %s x %.3f", span(k.GetDurationMs()), mode, digits(k.GetEffective()),
		digits(k.GetCurrent().GetCount()), digits(k.GetPrevious().GetCount()), k.GetWeight())
	head(w, "  %s", keyVerdict(k, of.GetJudgeProblem(), cost))
	t := newTable(w)
	t.row("  CELL", "FROM", "REGION", "COUNT", "WRITTEN")
	for _, cell := range []struct {
		name string
		*controlv1.KeyCell
	}{{"current", k.GetCurrent()}, {"previous", k.GetPrevious()}} {
		if len(cell.GetParts()) == 0 {
			t.row("  "+cell.name, moment(cell.GetStartMs()), "-", "0", "-")
		}
		for _, p := range cell.GetParts() {
			t.row("  "+cell.name, moment(cell.GetStartMs()), p.GetRegion(), digits(p.GetCount()),
				sinceOr(of.GetNowMs(), p.GetUpdatedAtMs()))
		}
	}
	t.flush()
}

// sinceOr is how long ago a moment is; 0 is unknown.
func sinceOr(nowMs, atMs int64) string {
	if atMs == 0 {
		return "-"
	}
	return fmt.Sprint(span(max(0, nowMs-atMs)), " ago")
}
