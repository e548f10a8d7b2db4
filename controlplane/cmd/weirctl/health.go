package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type health struct{ again }

// Run prints the watch's findings. The worst finding sets the exit code.
func (h health) Run(c *call) error {
	return h.look(c, func(c *call) error {
		answer, err := apiclient.Ask(c.ctx, c.Health.GetHealth, &controlv1.GetHealthRequest{})
		if err != nil {
			return err
		}
		d := answer.GetHealth()
		if err := c.print(answer, func(w io.Writer) { c.writeHealth(w, d) }); err != nil {
			return err
		}
		return judge(d.GetOverall(), "the health of the fleet is "+d.GetOverall(), "Each finding has the next step.")
	})
}

// errFound marks errors that are findings of a command, as opposed to failures of the command.
var errFound = errors.New("found")

// found is the text of a finding.
type found struct{ text string }

func (f found) Error() string { return f.text }
func (f found) Unwrap() error { return errFound }

// verdict reports whether an error is a finding of a command that worked.
func verdict(err error) bool { return errors.Is(err, errFound) }

// judge returns a finding as an error with its exit code, or nil.
func judge(severity, text, hint string) error {
	switch severity {
	case "ok":
		return nil
	case "warning", "warn":
		return &hinted{found{text}, exitWarning, hint}
	}
	return &hinted{found{text}, exitCritical, hint}
}

func (c *call) writeHealth(w io.Writer, d *controlv1.Health) {
	format.Head(w, "%s, checked %s", format.Plain(d.GetOverall()), c.ago(d.GetAtMs()))
	if d.GetLive() {
		format.Head(w, "The watch on Restate has no recent result: weir-control checked for this call.")
	}
	for _, f := range d.GetFindings() {
		subject := ""
		if f.GetSubject() != "" {
			subject = " " + format.Plain(f.GetSubject())
		}
		_, _ = fmt.Fprintf(w, "\n%s  %s%s, since %s (%s)\n", format.Plain(f.GetSeverity()), format.Plain(f.GetKind()),
			subject,
			format.Moment(f.GetSinceMs()), c.ago(f.GetSinceMs()))
		format.Prose(w, "  ", f.GetWhat())
		format.Prose(w, "  -> ", f.GetAdvice())
	}
	if n := d.GetLeftOut(); n > 0 {
		format.Head(w, "\n%s not shown: an answer holds no more.", format.Plural(n, "finding"))
	}
}

type doctor struct{}

// Run prints the results of all checks. The worst result sets the exit code.
func (doctor) Run(c *call) error {
	answer, err := apiclient.Ask(c.ctx, c.Health.Diagnose, &controlv1.DiagnoseRequest{})
	if err != nil {
		return err
	}
	worst := "ok"
	for _, check := range answer.GetChecks() {
		if r := check.GetResult(); r == "fail" || r == "warn" && worst == "ok" {
			worst = r
		}
	}
	if err := c.print(answer, func(w io.Writer) { writeChecks(w, answer.GetChecks()) }); err != nil {
		return err
	}
	return judge(worst, "the doctor's worst result is "+worst, "See the notes below the table.")
}

func writeChecks(w io.Writer, checks []*controlv1.Check) {
	t := format.NewTable(w)
	t.Row("RESULT", "AREA", "CHECK", "FOUND")
	for _, check := range checks {
		what, _ := format.Cell(check.GetWhat())
		t.Row(check.GetResult(), check.GetArea(), check.GetName(), what)
	}
	t.Flush()
	for _, check := range checks {
		_, cut := format.Cell(check.GetWhat())
		if !cut && check.GetAdvice() == "" {
			continue
		}
		_, _ = fmt.Fprintf(w, "\n%s  %s, %s\n", format.Plain(check.GetResult()), format.Plain(check.GetArea()),
			format.Plain(check.GetName()))
		if cut {
			format.Prose(w, "  ", check.GetWhat())
		}
		if check.GetAdvice() != "" {
			format.Prose(w, "  -> ", check.GetAdvice())
		}
	}
}
