package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/workspaces"
)

type applyAll struct {
	File   string `short:"f" required:"" placeholder:"FILE" help:"A document as weirctl export writes it, in YAML or JSON; or a directory of documents. - is stdin."`
	Prune  bool   `help:"Delete overrides that the document lacks, and set namespaces that it lacks to their defaults. Otherwise they stay."`
	Reason string `placeholder:"TEXT" help:"Reason of the changes, for the audit log. Required without --dry-run."`
	Actor  string `env:"WEIR_ACTOR" placeholder:"NAME" help:"Who makes the change, for the audit log. Default: the user of this machine."`
}

// applied is the answer of apply for programs.
type applied struct {
	Changes []*change          `json:"changes"`
	Kept    int                `json:"kept"` // not in the document, and not pruned
	Tuning  []tuningDifference `json:"tuning"`
	Limits  string             `json:"limits,omitempty"` // what the overrides would have denied, in words
}

// Run changes the settings to those of a document, with one call for each that differs.
func (a applyAll) Run(c *call) error {
	actor, err := c.actor(a.Actor)
	if err != nil {
		return err
	}
	if a.Reason == "" && !c.dryRun {
		return &hinted{errors.New("--reason is missing: the audit log records it with each change"), exitUsage,
			"See weirctl apply --help."}
	}
	document, err := readDocument(a.File)
	if err != nil {
		return &hinted{err, exitUsage, "Correct the document, and try again."}
	}
	stored, err := c.stored()
	if err != nil {
		return err
	}
	c.leaveOut(document, stored.visible)
	tuned, err := tuningDifferences(document, stored.tunings)
	if err != nil {
		return err
	}
	p := planOf(document, stored, a.Prune)
	p.limits = c.limitsOf(p)
	if !c.form.documents() {
		writePlan(c.stdout, p, tuned)
		if p.limits != "" {
			format.Head(c.stdout, "%s", p.limits)
		}
	}
	if err := c.confirmPlan(p); err != nil {
		return err
	}
	done := 0
	if !c.dryRun {
		done, err = p.apply(c, actor, a.Reason)
	}
	return errors.Join(a.report(c, p, tuned, done), err)
}

// leaveOut removes from a document the settings of workspaces that the token may not see, and
// prints how many.
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

// report prints what became of a plan.
func (a applyAll) report(c *call, p plan, tuned []tuningDifference, done int) error {
	switch {
	case c.form.documents():
		all, differing := slices.Concat([]*change{}, p.changes), slices.Concat([]tuningDifference{}, tuned) // never null
		return c.document(applied{all, p.kept, differing, p.limits})
	case len(p.changes) == 0:
		format.Head(c.stdout, "nothing to change")
	case c.dryRun:
		format.Head(c.stdout, "%s to make; --dry-run changes nothing", format.Plural(int64(len(p.changes)), "change"))
	default:
		format.Head(c.stdout, "%d of %s applied; %s", done, format.Plural(int64(len(p.changes)), "change"), travels)
	}
	return nil
}

// writePlan shows a plan: a line a change.
func writePlan(w io.Writer, p plan, tuned []tuningDifference) {
	for _, c := range p.changes {
		format.Head(w, "%s", format.Plain(c.line()))
	}
	if p.kept > 0 {
		format.Head(w, "%s not in the document stay as they are; --prune deletes them", format.Plural(int64(p.kept),
			"setting"))
	}
	for _, t := range tuned {
		format.Head(w, "! tuning of %s: %s; apply leaves tuning as it is, and this rolls it out:\n  %s",
			format.Plain(t.Region), differences(t.Changes), format.Plain(t.Command))
	}
}

// apply makes the changes in order and stops at the first that fails; done is how many it has made.
func (p plan) apply(c *call, actor, reason string) (done int, err error) {
	for i, change := range p.changes {
		if err := change.do(c, actor, reason); err != nil {
			return i, p.partial(c, i, err)
		}
		change.Applied = true
	}
	return len(p.changes), nil
}

// partial says what was not applied, and why.
func (p plan) partial(c *call, done int, err error) error {
	text := err.Error()
	var rpc *connect.Error
	if errors.As(err, &rpc) {
		text = rpc.Message()
	}
	for _, left := range p.changes[done+1:] {
		_, _ = fmt.Fprintf(c.stderr, "not applied: %s\n", format.Plain(left.line()))
	}
	code, _ := explain(c.ctx, err, "", "apply")
	cause := "Correct the cause"
	if c.ctx.Err() != nil {
		cause = "The command exceeded --timeout: set a longer one"
	}
	return &hinted{
		fmt.Errorf("%d of %s are applied, and the next one failed: %s: %s",
			done, format.Plural(int64(len(p.changes)), "change"), p.changes[done].line(), text),
		code, cause + " and run it again: what is applied already stays as it is. " +
			"What failed may still happen: see weirctl audit.",
	}
}
