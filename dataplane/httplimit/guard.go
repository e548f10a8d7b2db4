package httplimit

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// Guard applies policies to calls. Make it with New. All methods are safe for concurrent use.
type Guard struct {
	config   Config
	policies []Policy
	fixed    string // RateLimit-Policy, if all quotas are constant
	outcomes sync.Pool
}

// New makes a Guard. The error names the faulty policy and field.
func New(config Config) (*Guard, error) {
	config.Policies = slices.Clone(config.Policies)
	for i := range config.Policies {
		if p := &config.Policies[i]; p.Namespace == "" {
			p.Namespace = p.Name
		}
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Clock == nil {
		config.Clock = time.Now
	}
	g := &Guard{config: config, policies: config.Policies}
	g.outcomes.New = func() any { return new(Outcome) }
	var fixed []byte
	for i := range g.policies {
		p := &g.policies[i]
		if p.QuotaFor != nil {
			fixed = nil
			break
		}
		fixed = AppendPolicy(fixed, p.Name, p.Quota)
	}
	g.fixed = string(fixed)
	return g, nil
}

// Outcome is the outcome of a call.
type Outcome struct {
	// Allowed reports whether the call may go on.
	Allowed bool

	// Fault is the reason why the call was not decided: FaultNone if it was.
	Fault Fault

	// Faulty is the policy with the fault; nil without a fault.
	Faulty *Policy

	// Standings are the decisions of the policies that apply to the call, in the Guard's order.
	Standings []Standing

	guard     *Guard
	now       time.Time
	jitter    time.Duration
	requests  []dataplane.Request
	decisions []dataplane.Decision
	text      []byte
}

// Standing is a policy's decision on a call.
type Standing struct {
	Policy   *Policy
	Quota    Quota // as requested; Decision.Limit is the applied limit
	Decision dataplane.Decision
}

// Fault is the reason why a policy could not be applied to a call.
type Fault int

const (
	// FaultNone is none.
	FaultNone Fault = iota
	// FaultNoKey means that Key found no key. The caller is at fault.
	FaultNoKey
	// FaultBounds means that QuotaFor returned a quota outside its bounds, or Cost a negative cost.
	// The policy is at fault.
	FaultBounds
)

// Check applies all policies to a call at once, and counts it if it passes. ctx bounds the time for which it may wait
// for the limiter's origin.
func (g *Guard) Check(ctx context.Context, call Call) *Outcome {
	o := new(Outcome)
	g.check(ctx, call, o)
	return o
}

func (g *Guard) check(ctx context.Context, call Call, o *Outcome) {
	o.reset(g)
	for i := range g.policies {
		fault := o.ask(&g.policies[i], call)
		if fault == FaultNone || g.policies[i].Open {
			continue
		}
		o.Fault, o.Faulty = fault, &g.policies[i]
		return
	}
	o.decide(ctx)
	if g.config.Jitter > 0 && !o.Allowed {
		o.jitter = rand.N(g.config.Jitter + 1)
	}
}

// ask adds a policy's request to the limiter.
func (o *Outcome) ask(p *Policy, call Call) Fault {
	identifier, found := p.Key(call)
	if !found || identifier == "" {
		return FaultNoKey
	}
	quota := p.Quota
	if p.QuotaFor != nil {
		var limited bool
		if quota, limited = p.QuotaFor(call, identifier); !limited {
			return FaultNone
		}
	}
	request := dataplane.Request{
		Workspace: p.Workspace, Namespace: p.Namespace, Identifier: window.BoundIdentifier(identifier),
		Limit: quota.Limit, Duration: quota.Duration, Cost: 1,
	}
	if p.Cost != nil {
		request.Cost = min(p.Cost(call), window.LimitMax) // no limit lets window.LimitMax pass
		request.ZeroCost = request.Cost == 0              // a 0 from the function means 0, not the default
	}
	if err := request.Validate(); err != nil {
		o.guard.config.Logger.Error("policy cannot be applied", "policy", p.Name, "path", call.Path(), "error", err)
		return FaultBounds
	}
	o.requests = append(o.requests, request)
	o.Standings = append(o.Standings, Standing{Policy: p, Quota: quota})
	return FaultNone
}

// decide calls the limiter with validated requests, so its decisions have no errors.
func (o *Outcome) decide(ctx context.Context) {
	switch len(o.requests) {
	case 0:
		o.Allowed = true
	case 1:
		d := &o.Standings[0].Decision
		*d = o.guard.config.Limiter.Allow(ctx, o.requests[0])
		o.Allowed = d.Allowed
	default:
		batch := o.guard.config.Limiter.AppendAllowMany(ctx, o.decisions[:0], o.requests)
		o.Allowed, o.decisions = batch.Allowed, batch.Decisions
		for i := range batch.Decisions {
			o.Standings[i].Decision = batch.Decisions[i]
		}
	}
}

func (o *Outcome) reset(g *Guard) {
	clear(o.requests)
	clear(o.Standings)
	*o = Outcome{
		guard: g, now: g.config.Clock(),
		Standings: o.Standings[:0], requests: o.requests[:0], decisions: o.decisions[:0], text: o.text[:0],
	}
}

// Explain describes in a line for people why a call did not pass. It returns "" if it did.
func (o *Outcome) Explain() string {
	switch {
	case o.Fault == FaultNoKey:
		return fmt.Sprintf("the request has no key for policy %q", o.Faulty.Name)
	case o.Fault == FaultBounds:
		return fmt.Sprintf("policy %q could not be applied", o.Faulty.Name)
	case o.Allowed:
		return ""
	case o.Unknown():
		return "the limiter cannot decide about this request at the moment"
	}
	return "the quota is used up"
}

// Unknown reports whether a call was denied only by the outage policy of its namespaces, because the limiter's origin
// does not answer.
func (o *Outcome) Unknown() bool {
	if o.Fault != FaultNone || o.Allowed {
		return false
	}
	for i := range o.Standings {
		if s := &o.Standings[i]; s.denied() && s.Decision.Source != dataplane.SourceDegradedClosed {
			return false
		}
	}
	return true
}

func (s *Standing) denied() bool { return !s.Decision.Allowed }

// passesNever reports whether waiting does not help, because the cost is above the limit.
func (s *Standing) passesNever() bool { return s.denied() && s.Decision.NeverPasses }
