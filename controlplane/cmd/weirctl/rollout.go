package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/files"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/strict"
	"github.com/weirhq/weir/shared/tuning"
)

const (
	watchEvery  = 2 * time.Second
	callTimeout = 15 * time.Second // of one look, while watching
)

type rolloutStart struct {
	tuningFlags
	limitsFlags
	Plan        string        `xor:"plan" placeholder:"FILE" help:"JSON document of the plan: stages, baseline_ms, apply_timeout_ms, lease_ms, guardrails, approvers, approval_ttl_ms. It replaces --stage, --bake, --baseline, --lease, --approvers, --approval-ttl and the guardrails of --limits; --plan with one of them is an error."`
	Stage       []string      `xor:"plan" sep:"none" placeholder:"WHERE" help:"A stage of the plan; repeat the flag in the order of the stages. WHERE is regions (eu,us), a share of all regions (50%; it is rounded up, so with one region 10% takes that region), or all. Append :1node, :3nodes or :10% for that many nodes of each region, :approval to wait for a person, and with --limits :shadow to decide as before and only count what the new limits would decide. The last stage takes all."`
	Bake        time.Duration `default:"5m" help:"How long each --stage is watched."`
	Baseline    time.Duration `default:"2m" help:"How long health is measured before each --stage."`
	Lease       time.Duration `default:"5m" help:"How long nodes run a stage's tuning without a renewal; after that they return to the previous tuning or limits."`
	Approvers   int32         `default:"1" help:"How many different people must approve each stage with :approval (1 to 10). You may be one of them."`
	ApprovalTTL time.Duration `name:"approval-ttl" default:"24h" help:"How long an approval is valid (1s to 720h)."`
	ID          string        `name:"id" placeholder:"NAME" help:"Name of the rollout. A second start under the same name starts nothing."`
	Force       bool          `help:"Start even if the health of the fleet is critical: see weirctl health."`
	Watch       bool          `help:"Follow it until it is over, as status --watch does."`
	by

	question string // text that needs a confirmation before the start; empty: none
}

// ofPlan are the flags that describe a plan together with --stage. The value is the field in the document of --plan.
var ofPlan = map[string]string{
	"bake": "bake_ms of a stage", "baseline": "baseline_ms", "lease": "lease_ms", "approvers": "approvers",
	"approval-ttl": "approval_ttl_ms", "newly-denied-share": "guardrails.newly_denied_share",
	"newly-denied-callers": "guardrails.newly_denied_callers", "protect": "guardrails.protected",
}

// AfterApply rejects flags that --plan overrides, and flags that do not go together with --limits or need it.
func (r rolloutStart) AfterApply(line *kong.Context) error {
	for _, given := range line.Path {
		if given.Flag == nil {
			continue
		}
		name := given.Flag.Name
		if err := r.limitsFlags.check(name); err != nil {
			return err
		}
		if field, ok := ofPlan[name]; ok && r.Plan != "" {
			return fmt.Errorf("--%s has no effect with --plan, which sets it: remove it, and write %s into the plan", name,
				field)
		}
	}
	return nil
}

func (r rolloutStart) Run(c *call) error {
	plan, err := r.plan()
	if err != nil && !(c.dryRun && errors.Is(err, errNoStage)) {
		return wrong(err)
	}
	if r.Limits != "" {
		return r.beginLimits(c, plan)
	}
	return r.begin(c, plan)
}

// begin prints the change to stderr, and starts a rollout with a plan.
func (r rolloutStart) begin(c *call, plan *controlv1.RolloutPlan) error {
	inForce, err := c.inForce()
	if err != nil {
		return err
	}
	if err := c.knowsRegions(plan, inForce); err != nil {
		return err
	}
	document, err := r.chosen(inForce)
	if err != nil {
		return wrong(err)
	}
	differs, err := writeDiff(c.stderr, inForceIn(inForce, plan), document)
	if err != nil {
		return wrong(err)
	}
	if len(r.Set) > 0 && !differs {
		return wrong(errors.New("nothing changes: this tuning is already in force"))
	}
	if r.question != "" && !c.yes && !c.dryRun {
		if err := c.confirm(atOnce, format.Plain(r.question)); err != nil {
			return err
		}
	}
	return r.start(c, &controlv1.StartRolloutRequest{Tuning: document, Plan: plan})
}

// start starts a rollout of a tuning or of limits.
func (r rolloutStart) start(c *call, msg *controlv1.StartRolloutRequest) error {
	msg.Actor, msg.Reason, msg.Id, msg.Force = r.Actor, r.Reason, r.ID, r.Force
	answer, err := apiclient.Ask(c.ctx, c.Rollouts.StartRollout, msg)
	if err != nil {
		return err
	}
	if r.Watch {
		return c.watchRollout(answer.GetRollout().GetId(), watchEvery)
	}
	return c.print(answer, func(w io.Writer) {
		c.writeRollout(w, answer.GetRollout())
		_, _ = fmt.Fprintf(w, "\nFollow it with: weirctl rollout status --watch %s\n",
			format.Plain(answer.GetRollout().GetId()))
	})
}

// knowsRegions returns an error if a plan names a region that does not exist, before the change of its tuning is shown.
func (c *call) knowsRegions(plan *controlv1.RolloutPlan, inForce []*controlv1.RegionTuning) error {
	var named []string
	for _, stage := range plan.GetStages() {
		named = append(named, stage.GetRegions()...)
	}
	if len(named) == 0 {
		return nil
	}
	answer, err := apiclient.Ask(c.ctx, c.Control.Fleet, &controlv1.FleetRequest{})
	if err != nil || answer.GetTruncated() {
		return err
	}
	var known []string
	for _, t := range inForce {
		known = append(known, t.GetRegion())
	}
	for _, n := range answer.GetNodes() {
		if n.GetLive() {
			known = append(known, n.GetRegion())
		}
	}
	slices.Sort(known)
	known = slices.DeleteFunc(slices.Compact(known), func(region string) bool { return region == "" })
	for _, region := range named {
		if slices.Contains(known, region) {
			continue
		}
		meant := ""
		for _, k := range append(known, "all") {
			if strict.Misspells(region, k) {
				meant = fmt.Sprintf(", did you mean %s?", format.Plain(k))
			}
		}
		return wrong(fmt.Errorf("region %q has no live node and no tuning of its own%s (known: %s)", region, meant,
			format.Plain(cmp.Or(strings.Join(known, ", "), "none"))))
	}
	return nil
}

// errNoStage does not stop --dry-run, which only compares the tuning or the limits.
var errNoStage = errors.New("no stage is named: give --stage REGION for the first stage and --stage all for the " +
	"last, or a --plan")

// wrong returns an error about a file or a flag.
func wrong(err error) error {
	return &hinted{err, exitUsage, "Correct it and try again; see weirctl rollout start --help."}
}

// tuningDocument reads a file, stdin, or a built-in document.
func tuningDocument(name string) (string, error) {
	if preset, err := tuning.Preset(name); err == nil {
		b, err := preset.Document()
		return string(b), err
	}
	text, err := files.Read(name, files.BytesMax)
	return string(text), err
}

func (r rolloutStart) plan() (*controlv1.RolloutPlan, error) {
	plan := &controlv1.RolloutPlan{}
	if r.Plan != "" {
		text, err := files.Read(r.Plan, files.BytesMax)
		if err != nil {
			return nil, err
		}
		if err := protojson.Unmarshal(text, plan); err != nil {
			return nil, fmt.Errorf("plan %s: %w", r.Plan, err)
		}
		return plan, r.limitsFlags.checkPlan(plan)
	}
	if len(r.Stage) == 0 {
		return nil, errNoStage
	}
	plan.LeaseMs, plan.BaselineMs = new(r.Lease.Milliseconds()), new(r.Baseline.Milliseconds())
	plan.Approvers, plan.ApprovalTtlMs = &r.Approvers, new(r.ApprovalTTL.Milliseconds())
	for _, text := range r.Stage {
		stage, err := parseStage(text)
		if err != nil {
			return nil, err
		}
		stage.BakeMs = new(r.Bake.Milliseconds())
		plan.Stages = append(plan.Stages, stage)
	}
	if err := r.guard(plan); err != nil {
		return nil, err
	}
	return plan, r.limitsFlags.checkPlan(plan)
}

// parseStage reads "eu,us", "50%" or "all". After it can follow, each at most once and in any order, ":1node",
// ":3nodes" or ":10%" for a part of each region's nodes, ":shadow", and ":approval". Regions with a colon in their name
// need a plan in a file.
func parseStage(text string) (*controlv1.RolloutStage, error) {
	where, behind, colon := strings.Cut(text, ":")
	stage := &controlv1.RolloutStage{}
	for left := behind; colon; {
		var option string
		if option, left, colon = strings.Cut(left, ":"); !parseOption(stage, option) {
			return nil, fmt.Errorf("--stage %q: %q after the colon is invalid (want nodes as in 1node, 3nodes or 10%%, shadow "+
				"and approval, each at most once)", text, behind)
		}
	}
	share, isShare := strings.CutSuffix(where, "%")
	switch {
	case where == "all":
		stage.All = true
	case isShare:
		percent, err := strict.Int("share", share, 1, 100)
		if err != nil {
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

// parseOption reads an option of a stage, and reports whether it is valid and the first of its kind.
func parseOption(stage *controlv1.RolloutStage, text string) bool {
	var seen *bool
	switch text {
	case "approval":
		seen = &stage.Approval
	case "shadow":
		seen = &stage.Shadow
	default:
		return stage.Nodes == 0 && stage.NodesPercent == 0 && parseNodes(stage, text)
	}
	first := !*seen
	*seen = true
	return first
}

// parseNodes reads the number or share of each region's nodes. The API checks the bounds.
func parseNodes(stage *controlv1.RolloutStage, text string) bool {
	number := strings.TrimRight(text, "%nodes")
	n, err := strict.Int("nodes", number, 1, math.MaxInt32)
	if err != nil {
		return false
	}
	switch text[len(number):] {
	case "%":
		stage.NodesPercent = int32(n)
	case "node", "nodes":
		stage.Nodes = int32(n)
	default:
		return false
	}
	return true
}

type rolloutStatus struct {
	ID    string        `arg:"" optional:"" name:"id" help:"The rollout; default: the newest."`
	Watch bool          `help:"Follow it until it is over."`
	Every time.Duration `default:"2s" help:"Time between two updates of --watch."`
}

func (r rolloutStatus) Run(c *call) error {
	if r.Watch {
		return c.watchRollout(r.ID, max(r.Every, 10*time.Millisecond))
	}
	return noneYet(r.ID, show(c, c.Rollouts.RolloutStatus, &controlv1.RolloutStatusRequest{Id: r.ID},
		func(w io.Writer, answer *controlv1.RolloutStatusResponse) { c.writeRollout(w, answer.GetRollout()) }))
}

// noneYet returns the error for a fleet without rollouts, because no rollout was named that could be missing.
func noneYet(id string, err error) error {
	if id == "" && connect.CodeOf(err) == connect.CodeNotFound {
		return &hinted{errors.New("there has been no rollout yet"), exitFailure,
			"Start one: see weirctl rollout start --help."}
	}
	return err
}

// on is the rollout of an action. The ID is required, because the newest rollout can have changed.
type on struct {
	ID string `arg:"" name:"id" help:"The rollout."`
	by
}

func (o on) operate(c *call, action controlv1.RolloutAction) error {
	return o.order(c, &controlv1.OperateRolloutRequest{Action: action})
}

func (o on) order(c *call, msg *controlv1.OperateRolloutRequest) error {
	msg.Id, msg.Actor, msg.Reason = o.ID, o.Actor, o.Reason
	return show(c, c.Rollouts.OperateRollout, msg,
		func(w io.Writer, answer *controlv1.OperateRolloutResponse) { c.writeRollout(w, answer.GetRollout()) })
}

type (
	rolloutApprove struct {
		on
		Stage    int32  `required:"" placeholder:"N" help:"The stage to approve, from 1, as status shows it."`
		Asked    int64  `placeholder:"N" help:"Number of the request for approval, as status showed it; default: the current one."`
		Evidence string `placeholder:"HASH" help:"The evidence that status showed; default: the evidence that it shows now."`
	}
	rolloutPause    struct{ on }
	rolloutResume   struct{ on }
	rolloutAbort    struct{ on }
	rolloutRollback struct{ on }
)

// Run approves only the stage that its flag names.
func (r rolloutApprove) Run(c *call) error {
	asked, evidence := r.Asked, r.Evidence
	if asked == 0 || evidence == "" {
		answer, err := apiclient.Ask(c.ctx, c.Rollouts.RolloutStatus, &controlv1.RolloutStatusRequest{Id: r.ID})
		if err != nil {
			return err
		}
		stands := answer.GetRollout() // if the rollout has not requested an approval, the API's error describes its phase
		asked = cmp.Or(asked, stands.GetAsked(), 1)
		evidence = cmp.Or(evidence, stands.GetApprovals().GetEvidence(), "none")
	}
	return r.order(c, &controlv1.OperateRolloutRequest{Action: controlv1.RolloutAction_ROLLOUT_ACTION_APPROVE,
		Stage: r.Stage, Asked: asked, Evidence: evidence})
}

func (r rolloutPause) Run(c *call) error {
	return r.operate(c, controlv1.RolloutAction_ROLLOUT_ACTION_PAUSE)
}

func (r rolloutResume) Run(c *call) error {
	return r.operate(c, controlv1.RolloutAction_ROLLOUT_ACTION_RESUME)
}

func (r rolloutAbort) Run(c *call) error {
	return r.operate(c, controlv1.RolloutAction_ROLLOUT_ACTION_ABORT)
}

func (r rolloutRollback) Run(c *call) error {
	return r.operate(c, controlv1.RolloutAction_ROLLOUT_ACTION_ROLLBACK)
}

type rolloutHistory struct {
	ID string `arg:"" optional:"" name:"id" help:"Show the events of this rollout; default: list all."`
}

func (r rolloutHistory) Run(c *call) error {
	if r.ID != "" {
		return show(c, c.Rollouts.RolloutStatus, &controlv1.RolloutStatusRequest{Id: r.ID},
			func(w io.Writer, answer *controlv1.RolloutStatusResponse) {
				writeEvents(w, answer.GetRollout().GetEvents())
			})
	}
	return show(c, c.Rollouts.ListRollouts, &controlv1.ListRolloutsRequest{}, writeRollouts)
}
