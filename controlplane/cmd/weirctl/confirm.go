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
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/window"
)

// answerBytesMax bounds the text that is read as the answer to a question.
const answerBytesMax = 16

// Reasons for a confirmation.
const (
	undone = "cannot be undone"
	atOnce = "takes effect at once"
)

// questions have the calls that need a confirmation: calls that cannot be undone, and calls that can change the
// decisions of the whole fleet. what returns a description of the loss or change, or "" if a call needs no
// confirmation.
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

// confirmed returns an interceptor that requires a confirmation for the calls in questions.
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

// confirm prints a question on the terminal, and restarts --timeout after the answer. Without a terminal it returns an
// error.
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
	go func() { // a read from a terminal cannot be canceled; it ends with the process
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

// blocksMany describes an override that denies every request of all identifiers that match a pattern.
func blocksMany(_ *call, _ context.Context, req connect.AnyRequest) (string, error) {
	msg := req.Any().(*controlv1.ChangeOverrideRequest)
	if msg.Limit == nil || msg.GetLimit() != 0 || msg.GetShadow() || window.IsExact(msg.GetPattern()) {
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
	return fmt.Sprintf("all nodes of rollout %s return to the tuning or limits from before it, without stages",
		msg.GetId()), nil
}

// endsSecret describes a rotation that ends the current secret immediately.
func endsSecret(_ *call, _ context.Context, req connect.AnyRequest) (string, error) {
	msg := req.Any().(*controlv1.RotateTokenRequest)
	if msg.GetOverlapMs() > 0 {
		return "", nil
	}
	return fmt.Sprintf("calls with the current secret of token %s are refused from now on", msg.GetName()), nil
}

// lostOverride describes the override that would be deleted. It also makes the deletion fail if the override changes
// meanwhile.
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
	return limitchange.OverrideSubject(limitchange.OverrideOf(o)) + ": " + plan.OverrideWords(o), nil
}

func lostCounts(_ *call, _ context.Context, req connect.AnyRequest) (string, error) {
	msg := req.Any().(*controlv1.ResetKeyRequest)
	return fmt.Sprintf("every region's counts of %s/%s/%s", msg.GetWorkspace(), msg.GetNamespace(),
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

// lossesShown is the number of losses that apply lists at most.
const lossesShown = 20

// confirmPlan requires one confirmation for all deletions of a plan and all patterns that it blocks.
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

// isTerminal reports whether a person can type there. The null device is a character device, but no terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && !os.SameFile(info, null)
}
