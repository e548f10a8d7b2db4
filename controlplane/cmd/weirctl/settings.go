package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/window"
)

// travels is the time after which a setting takes effect.
const travels = "nodes have it within two settings_interval_ms, about 10s unless tuned"

// space is a namespace.
type space struct {
	Workspace string `arg:"" help:"The workspace."`
	Namespace string `arg:"" help:"The namespace in it."`
}

type overrideSet struct {
	space
	Pattern   string         `arg:"" help:"An identifier, a network of addresses (203.0.113.0/24, 2001:db8::/32), or a pattern with * for any bytes. The most specific one applies."`
	Limit     *int64         `xor:"limit" placeholder:"LIMIT" help:"The limit; 0 blocks. A new override needs one."`
	Unlimited bool           `xor:"limit" help:"The largest limit, 9007199254740991, which no caller reaches."`
	Duration  *time.Duration `placeholder:"DURATION" help:"The window (1s to 8784h). 0 uses the request's, and is the default of a new override."`

	Candidate *int64 `placeholder:"LIMIT" help:"A limit to try: it denies nothing, but responses and metrics show the requests that it would have denied. 0 removes it."`
	Shadow    *bool  `negatable:"" help:"Decide and report, but let everything pass. Requests that would be denied are not counted. --no-shadow ends it."`
	by
}

// Run creates an override, or changes the fields whose flags are set and keeps the others. First it prints to stderr
// the current override and an estimate of the requests that the new limit would have denied.
func (o overrideSet) Run(c *call) error {
	if o.Unlimited {
		o.Limit = new(int64(window.LimitMax))
	}
	if o.Limit == nil && o.Duration == nil && o.Candidate == nil && o.Shadow == nil {
		nothing := errors.New("nothing to change: set --limit, --unlimited, --duration, --candidate or --shadow")
		return &hinted{nothing, exitUsage, "See weirctl override set --help."}
	}
	change := &controlv1.ChangeOverrideRequest{
		Actor: o.Actor, Reason: o.Reason, Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern,
		Limit: o.Limit, Candidate: o.Candidate, Shadow: o.Shadow,
	}
	if o.Duration != nil {
		change.DurationMs = new(o.Duration.Milliseconds())
	}
	if err := c.foretell(change); err != nil {
		return err
	}
	return show(c, c.Settings.ChangeOverride, change, func(w io.Writer, answer *controlv1.ChangeOverrideResponse) {
		format.Head(w, "set: %s; %s", plan.OverrideWords(answer.GetOverride()), travels)
	})
}

// foretell prints to stderr the current override, and which requests of the busiest keys the new
// limit would have denied.
func (c *call) foretell(next *controlv1.ChangeOverrideRequest) error {
	found, err := apiclient.Ask(c.ctx, c.Settings.GetOverride, &controlv1.GetOverrideRequest{
		Workspace: next.GetWorkspace(), Namespace: next.GetNamespace(), Pattern: next.GetPattern()})
	was := found.GetOverride()
	switch connect.CodeOf(err) {
	case connect.CodeNotFound:
		format.Head(c.stderr, "there is no override of exactly this pattern yet")
	case connect.CodeInvalidArgument, connect.CodeUnimplemented: // the change will be rejected, or weir-control is older
		return nil
	default:
		if err != nil {
			return err
		}
		format.Head(c.stderr, "before: %s", plan.OverrideWords(was))
	}
	if next.Limit == nil {
		return nil
	}
	limit := &controlv1.LimitChange{Workspace: next.GetWorkspace(), Namespace: next.GetNamespace(),
		Pattern: next.GetPattern(), Limit: next.GetLimit(), DurationMs: was.GetDurationMs(), Shadow: was.GetShadow()}
	if next.DurationMs != nil {
		limit.DurationMs = next.GetDurationMs()
	}
	if next.Shadow != nil {
		limit.Shadow = next.GetShadow()
	}
	if words := c.limitsOf(plan.Plan{Changes: []*plan.Change{{Limit: limit}}}); words != "" {
		format.Prose(c.stderr, "", words)
	}
	return nil
}

type overrideDelete struct {
	space
	Pattern     string `arg:"" help:"The identifier or pattern, as it was set."`
	IfUpdatedAt *int64 `placeholder:"MS" help:"Delete the override only if it still has this updatedAtMs, as override list -o json shows it. Default: in any case."`
	by
}

func (o overrideDelete) Run(c *call) error {
	return show(c, c.Settings.DeleteOverride, &controlv1.DeleteOverrideRequest{
		Actor: o.Actor, Reason: o.Reason, Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern,
		IfUpdatedAtMs: o.IfUpdatedAt,
	}, func(w io.Writer, _ *controlv1.DeleteOverrideResponse) { _, _ = fmt.Fprintln(w, "deleted; "+travels) })
}

type overrideList struct {
	space
	After string `placeholder:"PATTERN" help:"Begin after this name, the last of the previous page."`
}

func (o overrideList) Run(c *call) error {
	ask := &controlv1.ListOverridesRequest{Workspace: o.Workspace, Namespace: o.Namespace, After: o.After}
	return show(c, c.Settings.ListOverrides, ask, func(w io.Writer, answer *controlv1.ListOverridesResponse) {
		if len(answer.GetOverrides()) == 0 {
			format.Head(w, "%s", none(o.After, "no override is set in this namespace"))
			return
		}
		t := format.NewTable(w)
		t.Row("PATTERN", "LIMIT", "DURATION", "CANDIDATE", "SHADOW", "SET")
		last := ""
		for _, o := range answer.GetOverrides() {
			candidate := "-"
			if o.GetCandidate() > 0 {
				candidate = format.Digits(o.GetCandidate())
			}
			t.Row(o.GetPattern(), plan.Words.Limit(o.GetLimit()), plan.Words.Window(o.GetDurationMs()), candidate,
				format.Yes(o.GetShadow()), format.Moment(o.GetUpdatedAtMs()))
			last = o.GetPattern()
		}
		t.Flush()
		writeMore(w, answer.GetHasMore(), last)
	})
}

// writeMore prints the flag for the next page of a list.
func writeMore(w io.Writer, more bool, last string) {
	if more {
		_, _ = fmt.Fprintf(w, "\nThere are more: --after %q\n", last)
	}
}

// none returns the output for an empty list; the first page has an explanation.
func none(after, first string) string {
	if after != "" {
		return "the list has no more after --after"
	}
	return first
}

type namespaceSet struct {
	space
	Shadow    *bool   `negatable:"" help:"Decide and report, but let everything pass. Requests that would be denied are not counted. --no-shadow ends it."`
	Mode      *string `enum:"exact,estimate" help:"How it counts: ${enum}."`
	Outage    *string `enum:"local,open,closed" help:"The decisions without an answer from Redis: decide by local counts, let all pass, or deny all (${enum})."`
	NodeShare *string `enum:"wait,flush" help:"What it does once a node has used up its share of a limit: wait for Redis, the default, or send at once and never wait for that (${enum})."`
	Window    *string `enum:"cells,precise" help:"How it counts a duration: in cells, or so that no real window has more than the limit (${enum})."`
	Estimate  *string `placeholder:"JSON" help:"Settings of the estimate mode; empty for its defaults."`
	by
}

func (n namespaceSet) Run(c *call) error {
	answer, err := apiclient.Ask(c.ctx, c.Settings.SetNamespace, &controlv1.SetNamespaceRequest{
		Actor: n.Actor, Reason: n.Reason, Workspace: n.Workspace, Namespace: n.Namespace,
		Shadow: n.Shadow, Mode: n.Mode, Outage: n.Outage, NodeShare: n.NodeShare, Window: n.Window, Estimate: n.Estimate,
	})
	if err != nil {
		return err
	}
	if err := plan.CheckWindow(answer.GetNamespace(), n.Window); err != nil {
		return err
	}
	return c.print(answer, func(w io.Writer) {
		writeNamespaces(w, []*controlv1.Namespace{answer.GetNamespace()})
	})
}

type namespaceList struct {
	Workspace string `arg:"" help:"The workspace."`
	After     string `placeholder:"NAMESPACE" help:"Begin after this name, the last of the previous page."`
}

func (n namespaceList) Run(c *call) error {
	ask := &controlv1.ListNamespacesRequest{Workspace: n.Workspace, After: n.After}
	return show(c, c.Settings.ListNamespaces, ask, func(w io.Writer, answer *controlv1.ListNamespacesResponse) {
		found := answer.GetNamespaces()
		if len(found) == 0 {
			format.Head(w, "%s", none(n.After, "no namespace of this workspace has settings: all use the defaults"))
			return
		}
		writeNamespaces(w, found)
		writeMore(w, answer.GetHasMore(), found[len(found)-1].GetNamespace())
	})
}

func writeNamespaces(w io.Writer, namespaces []*controlv1.Namespace) {
	t := format.NewTable(w)
	t.Row("NAMESPACE", "MODE", "OUTAGE", "NODE SHARE", "WINDOW", "SHADOW", "ESTIMATE")
	for _, n := range namespaces {
		t.Row(n.GetNamespace(), n.GetMode(), n.GetOutage(), n.GetNodeShare(), limitchange.WindowOf(n),
			format.Yes(n.GetShadow()), format.OrNone(n.GetEstimate()))
	}
	t.Flush()
}
