package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// answerBytesMax is how much of an answer to a question is read.
const answerBytesMax = 16

// Reasons for asking a person.
const (
	undone = "cannot be undone"
	atOnce = "takes effect at once"
)

// questions are asked before the calls that cannot be undone, or that can change the decisions of a whole fleet at
// once. what describes what a call would lose or change; a call that it returns "" for is not asked about.
var questions = map[string]struct {
	why  string
	what func(*call, context.Context, connect.AnyRequest) (string, error)
}{
	controlv1connect.SettingsServiceDeleteOverrideProcedure: {undone, (*call).lostOverride},
	controlv1connect.SettingsServiceResetKeyProcedure:       {undone, lostCounts},
	controlv1connect.TokenServiceRevokeTokenProcedure:       {undone, lostToken},
	controlv1connect.RetirementServiceApproveDropProcedure:  {undone, (*call).lostTable},
	controlv1connect.SettingsServiceChangeOverrideProcedure: {atOnce, blocksMany},
	controlv1connect.RolloutServiceOperateRolloutProcedure:  {atOnce, rollsBack},
	controlv1connect.TokenServiceRotateTokenProcedure:       {atOnce, endsSecret},
}

// confirmed asks a person before a call that cannot be undone or that changes much at once.
func (c *call) confirmed(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		question, ok := questions[req.Spec().Procedure]
		if c.yes || !ok {
			return next(ctx, req)
		}
		what, err := question.what(c, ctx, req)
		if err != nil {
			return nil, err
		}
		if what == "" {
			return next(ctx, req)
		}
		if err := c.confirm(question.why, format.Plain(what)); err != nil {
			return nil, err
		}
		return next(c.ctx, req)
	}
}

// confirm asks on the terminal whether to go on, and starts --timeout anew afterwards. Without a terminal it refuses.
func (c *call) confirm(why, what string) error {
	const hint = "Nothing has changed. --dry-run shows what would change; --yes confirms it."
	if !c.interactive {
		return &hinted{fmt.Errorf("this %s, and there is no terminal to ask on: %s", why,
			strings.ReplaceAll(what, "\n", "; ")), exitUsage, hint}
	}
	_, _ = fmt.Fprintf(c.stderr, "This %s (%s):\n  %s\nGo on? [y/N] ", why, format.Plain(c.fleet.Name()),
		strings.ReplaceAll(what, "\n", "\n  "))
	answer, err := c.answer()
	if err != nil {
		return &hinted{fmt.Errorf("there was no answer: %w", err), exitFailure, hint}
	}
	if answer = strings.ToLower(answer); answer != "y" && answer != "yes" {
		return &hinted{errors.New("not confirmed"), exitFailure, hint}
	}
	c.cancel()
	c.ctx, c.cancel = context.WithTimeout(c.patient, c.timeout)
	return nil
}

// answer reads a line from the terminal, until the context ends.
func (c *call) answer() (string, error) {
	type line struct {
		text string
		err  error
	}
	lines := make(chan line, 1)
	go func() { // a read from a terminal cannot be ended; the process does
		text, err := bufio.NewReader(io.LimitReader(c.stdin, answerBytesMax)).ReadString('\n')
		lines <- line{strings.TrimSpace(text), err}
	}()
	select {
	case l := <-lines:
		return l.text, l.err
	case <-c.patient.Done():
		return "", c.patient.Err()
	}
}

// blocksMany describes an override that denies every request of all identifiers that a pattern matches.
func blocksMany(_ *call, _ context.Context, req connect.AnyRequest) (string, error) {
	msg := req.Any().(*controlv1.ChangeOverrideRequest)
	if msg.Limit == nil || msg.GetLimit() != 0 || msg.GetShadow() || !strings.Contains(msg.GetPattern(), "*") {
		return "", nil
	}
	return fmt.Sprintf("every request of every identifier of %s/%s that matches %s is denied, unless a more "+
		"specific override applies", msg.GetWorkspace(), msg.GetNamespace(), msg.GetPattern()), nil
}

// rollsBack describes a rollback, which does not go through stages.
func rollsBack(_ *call, _ context.Context, req connect.AnyRequest) (string, error) {
	msg := req.Any().(*controlv1.OperateRolloutRequest)
	if msg.GetAction() != controlv1.RolloutAction_ROLLOUT_ACTION_ROLLBACK {
		return "", nil
	}
	return fmt.Sprintf("all nodes of rollout %s return to the tuning from before it, without stages",
		msg.GetId()), nil
}

// endsSecret describes a rotation that ends the current secret at once.
func endsSecret(_ *call, _ context.Context, req connect.AnyRequest) (string, error) {
	msg := req.Any().(*controlv1.RotateTokenRequest)
	if msg.GetOverlapMs() > 0 {
		return "", nil
	}
	return fmt.Sprintf("calls with the current secret of token %s are refused from now on", msg.GetName()), nil
}

// lostOverride also makes sure that only the override that is shown is deleted.
func (c *call) lostOverride(ctx context.Context, req connect.AnyRequest) (string, error) {
	msg := req.Any().(*controlv1.DeleteOverrideRequest)
	answer, err := apiclient.Ask(ctx, c.Settings.GetOverride, &controlv1.GetOverrideRequest{
		Workspace: msg.GetWorkspace(), Namespace: msg.GetNamespace(), Pattern: msg.GetPattern(),
	})
	if err != nil {
		return "", err
	}
	o := answer.GetOverride()
	if msg.IfUpdatedAtMs == nil {
		msg.IfUpdatedAtMs = new(o.GetUpdatedAtMs())
	}
	return plan.OverrideSubject(plan.OverrideOf(o)) + ": " + plan.OverrideWords(o), nil
}

func lostCounts(_ *call, _ context.Context, req connect.AnyRequest) (string, error) {
	msg := req.Any().(*controlv1.ResetKeyRequest)
	return fmt.Sprintf("what every region has counted of %s/%s/%s", msg.GetWorkspace(), msg.GetNamespace(),
		msg.GetIdentifier()), nil
}

func lostToken(_ *call, _ context.Context, req connect.AnyRequest) (string, error) {
	return fmt.Sprintf("token %s: calls with it are refused, and no other token gets its name",
		req.Any().(*controlv1.RevokeTokenRequest).GetName()), nil
}

func (c *call) lostTable(ctx context.Context, req connect.AnyRequest) (string, error) {
	table := req.Any().(*controlv1.ApproveDropRequest).GetTable()
	answer, err := apiclient.Ask(ctx, c.Retirements.RetirementStatus, &controlv1.RetirementStatusRequest{Table: table})
	if err != nil {
		return "", err
	}
	r := answer.GetRetirement()
	return fmt.Sprintf("table %s, now %s, with %s", table, r.GetDated(),
		format.Plural(r.GetEvidence().GetRows(), "row")), nil
}

// lossesShown is how many of the losses of one apply are listed.
const lossesShown = 20

// confirmPlan asks once for everything that a plan deletes, and for all patterns that it blocks.
func (c *call) confirmPlan(p plan.Plan) error {
	var lines []string
	why := atOnce
	for _, change := range p.Changes {
		if change.Loses {
			why = undone
		}
		if change.Loses || change.Blocks {
			lines = append(lines, format.Plain(change.Line()))
		}
	}
	if len(lines) == 0 || c.yes || c.dryRun {
		return nil
	}
	if more := len(lines) - lossesShown; more > 0 {
		lines = append(lines[:lossesShown], "and "+format.Digits(int64(more))+" more")
	}
	if err := c.confirm(why, strings.Join(lines, "\n")); err != nil {
		return err
	}
	c.yes = true
	return nil
}

// isTerminal tells whether a person can answer there. The null device, a character device too, is no terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && !os.SameFile(info, null)
}
