package main

import (
	"fmt"
	"io"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
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
	return show(c, c.TopKeys.GetKey, ask,
		func(w io.Writer, answer *controlv1.GetKeyResponse) { writeKey(w, answer, k.Cost) })
}

// counted rejects values that the API would reject, or would read as an unset flag.
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
			duration = format.Span(o.GetDurationMs())
		}
		format.Head(w, "override %q: %s in %s", format.Plain(o.GetPattern()), format.Digits(o.GetLimit()), duration)
	}
	switch {
	case k.GetOverride().GetShadow():
		format.Head(w, "the override is in shadow mode: every request passes")
	case k.GetShadow():
		format.Head(w, "the namespace is in shadow mode: every request passes")
	}
	if r := k.GetReset_(); r != nil {
		format.Head(w, "reset %s: earlier counts are forgotten", format.Moment(r.GetSetAtMs()))
	}
	for _, window := range k.GetWindows() {
		writeKeyWindow(w, window, k, cost)
	}
	if len(k.GetWindows()) == 0 {
		format.Head(w, "no region has stored any count of it lately")
	}
	if k.GetTruncated() {
		format.Head(w, "the key has more counts than one answer covers: the sums may be too low")
	}
	format.Head(w, "\nThese are the counts that regions have stored; weirctl explain shows a node's counts.")
}

// keyVerdict describes whether a request would pass a window.
func keyVerdict(k *controlv1.KeyWindow, problem string, cost int64) string {
	limit := format.Digits(k.GetLimit())
	switch {
	case k.Limit == nil:
		return "the limit is unknown here: set --limit"
	case k.GetVerdict() == controlv1.KeyVerdict_KEY_VERDICT_NEVER_PASSES:
		return fmt.Sprintf("a cost of %s never passes a limit of %s", format.Digits(cost), limit)
	case k.GetVerdict() == controlv1.KeyVerdict_KEY_VERDICT_PASSES:
		return fmt.Sprintf("nodes last reported %s of %s: by that a cost of %s passes", format.Digits(k.GetReported()), limit,
			format.Digits(cost))
	case k.GetVerdict() == controlv1.KeyVerdict_KEY_VERDICT_DENIED:
		return fmt.Sprintf("nodes last reported %s of %s: by that a cost of %s is denied", format.Digits(k.GetReported()),
			limit,
			format.Digits(cost))
	}
	why := "no node has reported the key lately"
	if problem != "" {
		why = "the reports of nodes could not be read: " + format.Plain(problem)
	}
	return fmt.Sprintf("of %s: it is unknown whether a cost of %s passes, because %s", limit, format.Digits(cost), why)
}

// shadowVerdict describes the request that passes a window in shadow mode: whether it is over the limit.
func shadowVerdict(k *controlv1.KeyWindow, cost int64) string {
	limit, digits := format.Digits(k.GetLimit()), format.Digits(cost)
	switch {
	case k.Limit == nil:
		return fmt.Sprintf("a cost of %s passes in shadow mode; the limit is unknown here: set --limit", digits)
	case cost > k.GetLimit():
		return fmt.Sprintf("a cost of %s is more than the limit of %s, and passes in shadow mode", digits, limit)
	case k.Reported == nil:
		return fmt.Sprintf("of %s: a cost of %s passes in shadow mode", limit, digits)
	case cost > k.GetLimit()-k.GetReported():
		return fmt.Sprintf("nodes last reported %s of %s: by that a cost of %s is over the limit, and passes "+
			"in shadow mode",
			format.Digits(k.GetReported()), limit, digits)
	}
	return fmt.Sprintf("nodes last reported %s of %s: by that a cost of %s passes",
		format.Digits(k.GetReported()), limit, digits)
}

func writeKeyWindow(w io.Writer, k *controlv1.KeyWindow, of *controlv1.GetKeyResponse, cost int64) {
	mode := ""
	if k.GetMode() != "exact" {
		mode = " (" + k.GetMode() + ")"
	}
	format.Head(w, "%s%s: regions have stored %s, %s + %s x %.3f", format.Span(k.GetDurationMs()), mode,
		format.Digits(k.GetEffective()),
		format.Digits(k.GetCurrent().GetCount()), format.Digits(k.GetPrevious().GetCount()), k.GetWeight())
	verdict := keyVerdict(k, of.GetJudgeProblem(), cost)
	if of.GetShadow() {
		verdict = shadowVerdict(k, cost)
	}
	format.Head(w, "  %s", verdict)
	t := format.NewTable(w)
	t.Row("  CELL", "FROM", "REGION", "COUNT", "WRITTEN")
	for _, cell := range []struct {
		name string
		*controlv1.KeyCell
	}{{"current", k.GetCurrent()}, {"previous", k.GetPrevious()}} {
		if len(cell.GetParts()) == 0 {
			t.Row("  "+cell.name, format.Moment(cell.GetStartMs()), "-", "0", "-")
		}
		for _, p := range cell.GetParts() {
			t.Row("  "+cell.name, format.Moment(cell.GetStartMs()), p.GetRegion(), format.Digits(p.GetCount()),
				sinceOr(of.GetNowMs(), p.GetUpdatedAtMs()))
		}
	}
	t.Flush()
}

// sinceOr formats the time since a moment, or a dash if the moment is 0, which means unknown.
func sinceOr(nowMs, atMs int64) string {
	if atMs == 0 {
		return "-"
	}
	return fmt.Sprint(format.Span(max(0, nowMs-atMs)), " ago")
}
