package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/settings"
)

type applyAll struct {
	File   string `short:"f" required:"" placeholder:"FILE" help:"The document, as weirctl export writes it: YAML or JSON. - is stdin."`
	DryRun bool   `help:"Show what would change, and change nothing."`
	Prune  bool   `help:"Delete overrides that the document does not have, and set namespaces that it does not have back to their defaults. Without it they stay."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit log. Required without --dry-run."`
	Actor  string `env:"WEIR_ACTOR" placeholder:"NAME" help:"Who, for the audit log. Default: the user of this machine."`
}

// applied is the answer of apply for programs.
type applied struct {
	Changes []*change          `json:"changes"`
	Kept    int                `json:"kept"` // not in the document, and not pruned
	Tuning  []tuningDifference `json:"tuning"`
}

// Run makes the settings those of a document: one call for each that differs, as a person would make it.
func (a applyAll) Run(c *call) error {
	actor, err := c.actor(a.Actor)
	if err != nil {
		return err
	}
	if a.Reason == "" && !a.DryRun {
		return &told{errors.New("--reason is missing: it goes to the audit log with each change"), exitUsage,
			"See weirctl apply --help."}
	}
	document, err := readDocument(a.File)
	if err != nil {
		return &told{err, exitUsage, "Correct the document, and try again."}
	}
	stored, err := c.stored()
	if err != nil {
		return err
	}
	tuned, err := tuningDifferences(document, stored.tunings)
	if err != nil {
		return err
	}
	p := planOf(document, stored, a.Prune)
	if !c.json {
		writePlan(c.stdout, p, tuned)
	}
	done := 0
	if !a.DryRun {
		done, err = p.apply(c, actor, a.Reason)
	}
	return errors.Join(a.report(c, p, tuned, done), err)
}

// report says what has become of a plan.
func (a applyAll) report(c *call, p plan, tuned []tuningDifference, done int) error {
	switch {
	case c.json:
		encoder := json.NewEncoder(c.stdout)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		all, differing := slices.Concat([]*change{}, p.changes), slices.Concat([]tuningDifference{}, tuned) // never null
		return encoder.Encode(applied{all, p.kept, differing})
	case len(p.changes) == 0:
		head(c.stdout, "nothing to change")
	case a.DryRun:
		head(c.stdout, "%s to make; nothing is changed by --dry-run", plural(int64(len(p.changes)), "change"))
	default:
		head(c.stdout, "%d of %s applied; %s", done, plural(int64(len(p.changes)), "change"), travels)
	}
	return nil
}

func readDocument(name string) (*settings.Document, error) {
	text, err := readFile(name, settings.BytesMax)
	if err != nil {
		return nil, err
	}
	return settings.Parse(text)
}

// writePlan shows a plan: a line a change.
func writePlan(w io.Writer, p plan, tuned []tuningDifference) {
	for _, c := range p.changes {
		head(w, "%s", plain(c.line()))
	}
	if p.kept > 0 {
		head(w, "%s not in the document stay as they are; --prune deletes them", plural(int64(p.kept), "setting"))
	}
	for _, t := range tuned {
		head(w, "! tuning of %s: %s; apply leaves tuning as it is, and this rolls it out:\n  %s",
			plain(t.Region), differences(t.Changes), plain(t.Command))
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

// partial tells what was not applied, and why.
func (p plan) partial(c *call, done int, err error) error {
	text := err.Error()
	var rpc *connect.Error
	if errors.As(err, &rpc) {
		text = rpc.Message()
	}
	for _, left := range p.changes[done+1:] {
		_, _ = fmt.Fprintf(c.stderr, "not applied: %s\n", plain(left.line()))
	}
	code, _ := explain(c.ctx, err, "", "apply")
	cause := "Correct the cause"
	if c.ctx.Err() != nil {
		cause = "The time of --timeout is over: give it more"
	}
	return &told{
		fmt.Errorf("%d of %s are applied, and the next one failed: %s: %s",
			done, plural(int64(len(p.changes)), "change"), p.changes[done].line(), text),
		code, cause + " and run it again: what is applied already stays as it is. " +
			"What failed may still happen: see weirctl audit.",
	}
}
