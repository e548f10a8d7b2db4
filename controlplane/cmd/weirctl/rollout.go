package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/tuning"
)

const (
	fileBytesMax = 64 << 10
	watchEvery   = 2 * time.Second
	callTimeout  = 15 * time.Second // of one look, while watching
)

type rolloutStart struct {
	tuningFlags
	Plan     string        `xor:"plan" placeholder:"FILE" help:"JSON document of the plan: stages, baseline_ms, apply_timeout_ms, guardrails."`
	Stage    []string      `xor:"plan" sep:"none" placeholder:"WHERE" help:"A stage of the plan, in order: regions (eu,us), a share of all (50%), or all; with :approval behind it, it waits for a person."`
	Bake     time.Duration `default:"5m" help:"How long each --stage is watched."`
	Baseline time.Duration `default:"1m" help:"How long health is measured before each --stage."`
	ID       string        `name:"id" placeholder:"NAME" help:"Name of the rollout. Started again under its name, it is not started twice."`
	Watch    bool          `help:"Watch it until it is over, as status --watch does."`
	DryRun   bool          `help:"Show what it would change of the tuning in force, and stop."`
	by
}

// Run shows on stderr what changes, and starts a rollout.
func (r rolloutStart) Run(c *call) error {
	actor, err := c.actor(r.Actor)
	if err != nil {
		return err
	}
	plan, err := r.plan()
	if err != nil && !(r.DryRun && errors.Is(err, errNoStage)) {
		return wrong(err)
	}
	inForce, err := c.inForce()
	if err != nil {
		return err
	}
	document, err := r.chosen(inForce)
	if err != nil {
		return wrong(err)
	}
	differs, err := writeDiff(c.stderr, inForce, document)
	if err != nil {
		return wrong(err)
	}
	if len(r.Set) > 0 && !differs {
		return wrong(errors.New("nothing changes: all of it is in force"))
	}
	if r.DryRun {
		return c.print(&controlv1.GetTuningResponse{Tunings: inForce}, func(io.Writer) {}) // the diff has said it
	}
	answer, err := c.rollouts.StartRollout(c.ctx,
		connect.NewRequest(&controlv1.StartRolloutRequest{Actor: actor, Reason: r.Reason, Id: r.ID, Tuning: document,
			Plan: plan}))
	if err != nil {
		return err
	}
	if r.Watch {
		return c.watchRollout(answer.Msg.GetRollout().GetId(), watchEvery)
	}
	return c.print(answer.Msg, func(w io.Writer) {
		c.writeRollout(w, answer.Msg.GetRollout())
		_, _ = fmt.Fprintf(w, "\nFollow it with: weirctl rollout status --watch %s\n", plain(answer.Msg.GetRollout().GetId()))
	})
}

// errNoStage stops no --dry-run, which looks at the tuning alone.
var errNoStage = errors.New("no stage is named: say where it begins with --stage REGION, and --stage all where it " +
	"ends, or give a --plan")

// wrong is an error of a file or a flag.
func wrong(err error) error {
	return &told{err, exitUsage, "Correct it and try again; see weirctl rollout start --help."}
}

// tuningDocument reads a file, stdin, or a built-in document.
func tuningDocument(name string) (string, error) {
	if preset, err := tuning.Preset(name); err == nil {
		b, err := preset.Document()
		return string(b), err
	}
	text, err := readFile(name, fileBytesMax)
	return string(text), err
}

// readFile reads a file or stdin, and one byte more than it may have at most.
func readFile(name string, bytesMax int64) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, bytesMax+1))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, bytesMax+1))
}

func (r rolloutStart) plan() (*controlv1.RolloutPlan, error) {
	plan := &controlv1.RolloutPlan{}
	if r.Plan != "" {
		text, err := readFile(r.Plan, fileBytesMax)
		if err != nil {
			return nil, err
		}
		if err := protojson.Unmarshal(text, plan); err != nil {
			return nil, fmt.Errorf("plan %s: %w", r.Plan, err)
		}
		return plan, nil
	}
	if len(r.Stage) == 0 {
		return nil, errNoStage
	}
	bakeMs, baselineMs := r.Bake.Milliseconds(), r.Baseline.Milliseconds()
	plan.BaselineMs = &baselineMs
	for _, text := range r.Stage {
		stage, err := parseStage(text)
		if err != nil {
			return nil, err
		}
		stage.BakeMs = &bakeMs
		plan.Stages = append(plan.Stages, stage)
	}
	return plan, nil
}

// parseStage reads "eu,us", "50%" or "all", with or without ":approval". A plan's file takes regions with a colon.
func parseStage(text string) (*controlv1.RolloutStage, error) {
	where, with, colon := strings.Cut(text, ":")
	if colon && with != "approval" {
		return nil, fmt.Errorf("--stage %q: after the colon stands %q (only approval is allowed there)", text, with)
	}
	stage := &controlv1.RolloutStage{Approval: colon}
	share, isShare := strings.CutSuffix(where, "%")
	switch {
	case where == "all":
		stage.All = true
	case isShare:
		percent, err := strconv.ParseInt(share, 10, 32)
		if err != nil || percent < 1 || percent > 100 {
			return nil, fmt.Errorf("--stage %q: the share is %q (1 to 100, a whole percentage)", text, share)
		}
		stage.SharePercent = int32(percent)
	default:
		stage.Regions = strings.Split(where, ",")
		if slices.Contains(stage.Regions, "") {
			return nil, fmt.Errorf("--stage %q: a region has no name (want regions as in eu,us, a share as in 50%%, or all)",
				text)
		}
	}
	return stage, nil
}

type rolloutStatus struct {
	ID    string        `arg:"" optional:"" name:"id" help:"The rollout; default: the newest."`
	Watch bool          `help:"Look again and again, until it is over."`
	Every time.Duration `default:"2s" help:"Time between two looks of --watch."`
}

// Run shows a rollout.
func (r rolloutStatus) Run(c *call) error {
	if r.Watch {
		return c.watchRollout(r.ID, max(r.Every, 10*time.Millisecond))
	}
	answer, err := c.rollouts.RolloutStatus(c.ctx, connect.NewRequest(&controlv1.RolloutStatusRequest{Id: r.ID}))
	if err != nil {
		return noneYet(r.ID, err)
	}
	return c.print(answer.Msg, func(w io.Writer) { c.writeRollout(w, answer.Msg.GetRollout()) })
}

// noneYet tells of a fleet without rollouts in its own words: nothing was named that could be missing.
func noneYet(id string, err error) error {
	if id == "" && connect.CodeOf(err) == connect.CodeNotFound {
		return &told{errors.New("there has been no rollout yet"), exitFailure, "Start one: see weirctl rollout start --help."}
	}
	return err
}

// on is the rollout that an action is about. It is named: the newest may be another by now.
type on struct {
	ID string `arg:"" name:"id" help:"The rollout."`
	by
}

func (o on) operate(c *call, action controlv1.RolloutAction) error {
	return o.order(c, &controlv1.OperateRolloutRequest{Action: action})
}

func (o on) order(c *call, msg *controlv1.OperateRolloutRequest) (err error) {
	msg.Id, msg.Reason = o.ID, o.Reason
	if msg.Actor, err = c.actor(o.Actor); err != nil {
		return err
	}
	answer, err := c.rollouts.OperateRollout(c.ctx, connect.NewRequest(msg))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) { c.writeRollout(w, answer.Msg.GetRollout()) })
}

type (
	rolloutApprove struct {
		on
		Stage int32 `required:"" placeholder:"N" help:"The stage that is approved, from 1, as status shows it."`
		Asked int64 `placeholder:"N" help:"What status said is asked; default: what it says now."`
	}
	rolloutPause    struct{ on }
	rolloutResume   struct{ on }
	rolloutAbort    struct{ on }
	rolloutRollback struct{ on }
)

// Run approves the stage that it names, and no other.
func (r rolloutApprove) Run(c *call) error {
	asked := r.Asked
	if asked == 0 {
		answer, err := c.rollouts.RolloutStatus(c.ctx, connect.NewRequest(&controlv1.RolloutStatusRequest{Id: r.ID}))
		if err != nil {
			return err
		}
		asked = max(1, answer.Msg.GetRollout().GetAsked()) // 1 of one that has not asked: the API says how it stands
	}
	return r.order(c, &controlv1.OperateRolloutRequest{Action: controlv1.RolloutAction_ROLLOUT_ACTION_APPROVE,
		Stage: r.Stage, Asked: asked})
}

// Run pauses.
func (r rolloutPause) Run(c *call) error {
	return r.operate(c, controlv1.RolloutAction_ROLLOUT_ACTION_PAUSE)
}

// Run resumes.
func (r rolloutResume) Run(c *call) error {
	return r.operate(c, controlv1.RolloutAction_ROLLOUT_ACTION_RESUME)
}

// Run aborts.
func (r rolloutAbort) Run(c *call) error {
	return r.operate(c, controlv1.RolloutAction_ROLLOUT_ACTION_ABORT)
}

// Run rolls back.
func (r rolloutRollback) Run(c *call) error {
	return r.operate(c, controlv1.RolloutAction_ROLLOUT_ACTION_ROLLBACK)
}

type rolloutHistory struct {
	ID string `arg:"" optional:"" name:"id" help:"What happened in one rollout; default: the list of them."`
}

// Run lists rollouts, or what happened in one.
func (r rolloutHistory) Run(c *call) error {
	if r.ID != "" {
		answer, err := c.rollouts.RolloutStatus(c.ctx, connect.NewRequest(&controlv1.RolloutStatusRequest{Id: r.ID}))
		if err != nil {
			return err
		}
		return c.print(answer.Msg, func(w io.Writer) { writeEvents(w, answer.Msg.GetRollout()) })
	}
	answer, err := c.rollouts.ListRollouts(c.ctx, connect.NewRequest(&controlv1.ListRolloutsRequest{}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) { writeRollouts(w, answer.Msg) })
}
