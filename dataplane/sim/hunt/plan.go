package hunt

import "github.com/weirhq/weir/dataplane/sim/hunt/internal/plan"

type (
	// Plan is a history before it has happened.
	Plan = plan.Plan

	// Fleet is the fleet with which a history begins.
	Fleet = plan.Fleet

	// Key is an identifier in a window.
	Key = plan.Key

	// Slot is an identifier with a concurrency limit.
	Slot = plan.Slot

	// Step is an event of a history.
	Step = plan.Step

	// Costs are the costs of a reservation's keys.
	Costs = plan.Costs

	// Calls names a kind of calls that a server refuses.
	Calls = plan.Calls

	// Verb names the action of a Step.
	Verb = plan.Verb

	// Set is a set of a plan's steps.
	Set = plan.Set
)

// The verbs of steps, and kinds of calls that servers refuse: package internal/plan explains them.
const (
	Ask     = plan.Ask
	Burst   = plan.Burst
	Batch   = plan.Batch
	Reserve = plan.Reserve
	Hurry   = plan.Hurry
	Bulk    = plan.Bulk
	Peek    = plan.Peek
	Refund  = plan.Refund

	Hold       = plan.Hold
	SpendHold  = plan.SpendHold
	SettleHold = plan.SettleHold
	CancelHold = plan.CancelHold
	ExtendHold = plan.ExtendHold

	Acquire = plan.Acquire
	Token   = plan.Token
	Renew   = plan.Renew
	Release = plan.Release

	Override = plan.Override
	Unset    = plan.Unset
	Reset    = plan.Reset
	Tune     = plan.Tune
	Rule     = plan.Rule
	Reframe  = plan.Reframe
	Try      = plan.Try

	Kill  = plan.Kill
	Stop  = plan.Stop
	Join  = plan.Join
	Leave = plan.Leave
	Die   = plan.Die

	Cut              = plan.Cut
	Refuse           = plan.Refuse
	Mute             = plan.Mute
	Repeat           = plan.Repeat
	Slow             = plan.Slow
	CutMySQL         = plan.CutMySQL
	CutPeers         = plan.CutPeers
	Jumble           = plan.Jumble
	Isolate          = plan.Isolate
	LagCounts        = plan.LagCounts
	SlowMySQL        = plan.SlowMySQL
	FailMySQL        = plan.FailMySQL
	HoldFeed         = plan.HoldFeed
	RefuseCalls      = plan.RefuseCalls
	RefuseStatements = plan.RefuseStatements
	SetClock         = plan.SetClock

	Wipe     = plan.Wipe
	Failover = plan.Failover
	Unlease  = plan.Unlease
	LoseFeed = plan.LoseFeed
	Clock    = plan.Clock

	Writes    = plan.Writes
	Additions = plan.Additions
	Sends     = plan.Sends
)

// ErrSet is returned for a text that is no Set.
var ErrSet = plan.ErrSet

// Draw makes the plan of a seed. Each plan has only some kinds of requests, faults and shapes, because some bugs show
// only where another kind is absent.
func Draw(seed uint64) Plan { return plan.Draw(seed) }

// ParseSet is the inverse of Set.String.
func ParseSet(text string) (Set, error) { return plan.ParseSet(text) }
