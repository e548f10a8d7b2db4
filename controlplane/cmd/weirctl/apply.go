package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/workspaces"
)

type applyAll struct {
	File   string `short:"f" required:"" placeholder:"FILE" help:"A document as weirctl export writes it, in YAML or JSON; or a directory of documents. - is stdin."`
	Prune  bool   `help:"Delete overrides that the document lacks, and set namespaces that it lacks to their defaults. Otherwise they stay."`
	Reason string `placeholder:"TEXT" help:"Reason of the changes, for the audit log. Required without --dry-run."`
	Actor  string `env:"WEIR_ACTOR" placeholder:"NAME" help:"Who makes the change, for the audit log. Default: the user of this machine."`
}

// applied is the output of apply for programs.
type applied struct {
	Changes []*plan.Change          `json:"changes"`
	Kept    int                     `json:"kept"` // settings that --prune would delete
	Tuning  []plan.TuningDifference `json:"tuning"`
	Limits  string                  `json:"limits,omitempty"` // estimate for the overrides
}

// Run changes the settings to the settings in a document, with a call for each difference.
func (a applyAll) Run(c *call) error {
	if a.Reason == "" && !c.dryRun {
		return &hinted{errors.New("--reason is missing: the audit log records it with each change"), exitUsage,
			"See weirctl apply --help."}
	}
	document, err := plan.ReadDocument(a.File)
	if err != nil {
		return &hinted{err, exitUsage, "Correct the document, and try again."}
	}
	stored, err := c.stored()
	if err != nil {
		return err
	}
	c.leaveOut(document, stored.Visible)
	tuned, err := plan.TuningDifferences(document, stored.Tunings)
	if err != nil {
		return err
	}
	p := plan.Of(document, stored, a.Prune)
	p.Limits = c.limitsOf(p)
	if !c.form.documents() {
		writePlan(c.stdout, p, tuned)
		if p.Limits != "" {
			format.Prose(c.stdout, "", p.Limits)
		}
	}
	if len(p.Changes) > 0 {
		format.Head(c.stderr, "the whole fleet gets these changes at once; weirctl rollout start --limits stages them")
	}
	if err := c.confirmPlan(p); err != nil {
		return err
	}
	done := 0
	if !c.dryRun {
		done, err = applyPlan(c, p, a.Actor, a.Reason)
	}
	return errors.Join(a.report(c, p, tuned, done), err)
}

// leaveOut removes from a document the settings of workspaces that the token must not see, and prints their number.
func (c *call) leaveOut(document *settings.Document, visible *workspaces.Set) {
	before := len(document.Namespaces) + len(document.Overrides)
	document.Namespaces = slices.DeleteFunc(document.Namespaces, func(n settings.Namespace) bool {
		return !visible.Has(n.Workspace)
	})
	document.Overrides = slices.DeleteFunc(document.Overrides, func(o settings.Override) bool {
		return !visible.Has(o.Workspace)
	})
	if left := before - len(document.Namespaces) - len(document.Overrides); left > 0 {
		_, _ = fmt.Fprintf(c.stderr, "%s of other workspaces in the document: left out\n", format.Plural(int64(left),
			"setting"))
	}
}

// report prints the result of a plan.
func (a applyAll) report(c *call, p plan.Plan, tuned []plan.TuningDifference, done int) error {
	switch {
	case c.form.documents():
		all, differing := slices.Concat([]*plan.Change{}, p.Changes), slices.Concat([]plan.TuningDifference{},
			tuned) // never null
		return c.document(applied{all, p.Kept, differing, p.Limits})
	case len(p.Changes) == 0:
		format.Head(c.stdout, "nothing to change")
	case c.dryRun:
		format.Head(c.stdout, "%s to make; --dry-run changes nothing", format.Plural(int64(len(p.Changes)), "change"))
	default:
		format.Head(c.stdout, "%d of %s applied; %s", done, format.Plural(int64(len(p.Changes)), "change"), travels)
	}
	return nil
}

// writePlan prints a plan, a line for each change.
func writePlan(w io.Writer, p plan.Plan, tuned []plan.TuningDifference) {
	for _, c := range p.Changes {
		format.Head(w, "%s", format.Plain(c.Line()))
	}
	if p.Kept > 0 {
		format.Head(w, "%s", kept(p.Kept))
	}
	for _, t := range tuned {
		format.Head(w, "! tuning of %s: %s; apply leaves tuning as it is, and this rolls it out:\n  %s",
			format.Plain(t.Region), limitchange.Differences(t.Changes), format.Plain(t.Command))
	}
}

// kept describes the settings that the document lacks.
func kept(n int) string {
	if n == 1 {
		return "1 setting not in the document stays as it is; --prune deletes it"
	}
	return format.Digits(int64(n)) + " settings not in the document stay as they are; --prune deletes them"
}

// applyPlan makes the changes in order and stops at the first that fails. done is the number of changes made.
func applyPlan(c *call, p plan.Plan, actor, reason string) (done int, err error) {
	for i, change := range p.Changes {
		if err := change.Do(c.ctx, c.planned(), actor, reason); err != nil {
			return i, partial(c, p, i, err)
		}
		change.Applied = true
	}
	return len(p.Changes), nil
}

// partial prints the changes that were not made, and returns the error with its cause.
func partial(c *call, p plan.Plan, done int, err error) error {
	for _, left := range p.Changes[done+1:] {
		_, _ = fmt.Fprintf(c.stderr, "not applied: %s\n", format.Plain(left.Line()))
	}
	code, _ := explain(c.ctx, err, "", "apply")
	cause := "Correct the cause"
	if c.ctx.Err() != nil {
		cause = "The command exceeded --timeout: set a longer one"
	}
	return &hinted{
		fmt.Errorf("%d of %s are applied, and the next one failed: %s: %s",
			done, format.Plural(int64(len(p.Changes)), "change"), p.Changes[done].Line(), apiclient.Words(err)),
		code, cause + " and run it again: applied changes stay as they are. " +
			"The failed change may still happen: see weirctl audit.",
	}
}
