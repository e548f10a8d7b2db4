package rls

import (
	"context"
	"math"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// Procedure is the path of ShouldRateLimit.
const Procedure = rlsv3.RateLimitService_ShouldRateLimit_FullMethodName

// Limiter makes the decisions. *dataplane.Limiter implements it. Implementations must be safe for concurrent use.
type Limiter interface {
	Allow(ctx context.Context, request dataplane.Request) dataplane.Decision
	Peek(ctx context.Context, request dataplane.Request) dataplane.Decision
	AppendAllowMany(ctx context.Context, decisions []dataplane.Decision, requests []dataplane.Request) dataplane.Batch
	Refund(request dataplane.Request) (refunded int64, err error)
	Charge(request dataplane.Request) (charged int64, err error)
	Reserve(ctx context.Context, request dataplane.ReserveRequest) dataplane.Reserved
	Settle(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error)
	Cancel(ctx context.Context, id string) (dataplane.Settlement, error)
}

// Service responds to ShouldRateLimit. Its methods are safe for concurrent use.
type Service struct {
	Limiter   Limiter
	Rules     *Source
	Workspace string // workspace of all keys; a domain is a namespace in it
	Headers   Headers
	Metadata  bool // responses about a limit have dynamic_metadata

	// Unmatched counts and logs descriptors that no rule matches. If it is nil, they are neither
	// counted nor logged.
	Unmatched *Unmatched

	// ReadTimeout bounds how long all decisions of a call together wait for the origin. If it is 0, each decision can wait
	// for Config.ReadTimeout of package dataplane.
	ReadTimeout time.Duration
}

// item is a descriptor while its status is computed.
type item struct {
	limit    *Limit // nil: nothing limits it
	request  dataplane.Request
	nameEnd  int  // where its identifier ends in work.names; 0 if it has none
	refund   bool // gives hits back instead of taking them
	check    bool // for a charged rule: checks whether anything is left
	decision dataplane.Decision
	over     bool
}

// strict reports whether the item is decided together with the other strict items. A strict item denies the call if it
// is over, unless it is shadowed; a shadowed item is then only not charged.
func (i *item) strict() bool {
	return i.limited() && (i.limit.Shadow || !i.limit.Quota) && !i.refund && !i.limit.Charged
}

// lenient reports whether the item denies nothing by itself, and is counted if the call passes.
func (i *item) lenient() bool { return i.limited() && !i.strict() && !i.check && !i.charges() }

func (i *item) limited() bool { return i.limit != nil && !i.limit.Unlimited }

// ShouldRateLimit decides all descriptors of a call together: if one of them is over its limit, no descriptor is
// charged. Quotas are charged if the others let the call pass, and shadowed rules too unless they are over. Charged
// rules are charged in any case. An error is about the call itself.
func (s *Service) ShouldRateLimit(ctx context.Context, call *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	w, _ := works.Get().(*work)
	defer w.put()
	denied, err := s.decideCall(ctx, call, w)
	if err != nil {
		return nil, err
	}
	return s.answer(w.items, denied, time.Now()), nil
}

// decideCall stores the decisions in w's items.
func (s *Service) decideCall(ctx context.Context, call *rlsv3.RateLimitRequest, w *work) (denied bool, err error) {
	if err := check(call); err != nil {
		return false, err
	}
	w.take(len(call.GetDescriptors()))
	s.resolve(call, w)
	denied, err = s.decide(ctx, w)
	if err != nil {
		return false, status.Error(codes.InvalidArgument, err.Error())
	}
	return denied, nil
}

// resolve finds the limit of each descriptor.
func (s *Service) resolve(call *rlsv3.RateLimitRequest, w *work) {
	rules := s.Rules.rules()
	replacing := false
	for i, d := range call.Descriptors {
		it := &w.items[i]
		var patterns []string
		if o := d.GetLimit(); o != nil {
			it.limit = override(o)
			rule, _ := rules.match(call.Domain, d.GetEntries())
			it.limit.Charged = rule != nil && rule.Charged
		} else {
			var shared bool
			it.limit, shared = rules.match(call.Domain, d.GetEntries())
			if it.limit == nil {
				s.Unmatched.note(call.Domain, rules.has(call.Domain), d)
			}
			if shared && it.limited() {
				patterns = rules.sharedPatterns(call.Domain, d.GetEntries())
			}
		}
		if !it.limited() {
			replacing = replacing || it.limit != nil && it.limit.replaces != nil
			continue
		}
		replacing = replacing || it.limit.replaces != nil
		it.refund = d.GetIsNegativeHits()
		w.names = appendIdentifier(w.names, d.GetEntries(), patterns)
		it.nameEnd = len(w.names)
		it.request = dataplane.Request{
			Workspace: s.Workspace,
			Namespace: call.Domain,
			Limit:     it.limit.limit,
			Duration:  it.limit.duration,
			Cost:      hits(call, d),
			Shadow:    it.limit.Shadow,
		}
		if it.request.Cost == 0 { // a descriptor's own 0
			it.check = it.limit.Charged && !it.refund
			it.request.ZeroCost = !it.check
		}
	}
	w.name()
	if replacing {
		replace(w.items)
	}
}

// name sets the items' identifiers, which are slices of one string.
func (w *work) name() {
	names, from := string(w.names), 0
	for i := range w.items {
		if it := &w.items[i]; it.nameEnd > from {
			it.request.Identifier, from = names[from:it.nameEnd], it.nameEnd
		}
	}
}

// hits returns the cost of a descriptor: its own hits if it has any, 0 included; otherwise the
// call's, where 0 means 1. Hits above window.LimitMax, the largest cost, become window.LimitMax,
// which exceeds every limit as well.
func hits(call *rlsv3.RateLimitRequest, d *ratelimitv3.RateLimitDescriptor) int64 {
	if own := d.GetHitsAddend(); own != nil {
		return amount(own.GetValue())
	}
	return int64(max(1, call.GetHitsAddend()))
}

// amount converts hits to a cost of at most window.LimitMax.
func amount(hits uint64) int64 { return int64(min(hits, window.LimitMax)) }

// replace drops the rules whose names another rule of the call replaces.
func replace(items []item) {
	names := make(map[string]bool)
	for i := range items {
		if items[i].limit != nil {
			for _, name := range items[i].limit.replaces {
				names[name] = true
			}
		}
	}
	for i := range items {
		if l := items[i].limit; l != nil && !l.Unlimited && l.name != "" && names[l.name] {
			items[i].limit = nil
		}
	}
}

// decide stores the items' decisions, and reports whether the call is denied.
func (s *Service) decide(ctx context.Context, w *work) (denied bool, err error) {
	items := w.items
	if len(items) == 1 && items[0].strict() { // nearly every call
		it := &items[0]
		it.decision = s.Limiter.Allow(ctx, it.request)
		it.over = !it.decision.Allowed
		return it.over, it.decision.Err
	}
	if some(items, func(it *item) bool { return it.limited() && !it.strict() }) { // otherwise the items are one batch
		var cancel context.CancelFunc
		ctx, cancel = s.within(ctx)
		defer cancel()
	}
	lenient, quotas, quotasOver := false, 0, 0
	usedUp, err := s.decideCharged(ctx, items)
	if err != nil {
		return false, err
	}
	s.lookAt(ctx, items, (*item).lenient)
	for i := range items {
		it := &items[i]
		switch {
		case it.strict():
			w.strict = append(w.strict, it.request)
		case it.lenient():
			lenient = true
			if it.limit.Quota && !it.refund {
				quotas++
				if it.over {
					quotasOver++
				}
			}
		}
	}
	if usedUp || quotas > 0 && quotasOver == quotas {
		denied = true
		s.lookAt(ctx, items, (*item).strict)
	} else if len(w.strict) > 0 {
		batch := s.Limiter.AppendAllowMany(ctx, w.decisions, w.strict)
		w.decisions = batch.Decisions
		if batch.Err != nil {
			return false, batch.Err
		}
		denied = !batch.Allowed
		n := 0
		for i := range items {
			if items[i].strict() {
				items[i].decision = batch.Decisions[n]
				items[i].over = !batch.Decisions[n].Allowed
				n++
			}
		}
	}
	if lenient && !denied {
		return false, s.chargeLenient(ctx, items)
	}
	return denied, firstError(items)
}

// within returns a context that bounds how long the decisions of a call wait together. After it has
// ended, further decisions use this node's own counts, or their namespace's outage policy.
func (s *Service) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.ReadTimeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.ReadTimeout)
}

// look stores a peek in place of a decision. The item is over if the cost would not pass. Remaining is the amount
// before the cost.
func (i *item) look(peeked dataplane.Decision) {
	i.decision = peeked
	if i.over = !peeked.Allowed && !i.refund; peeked.Allowed && !peeked.Shadowed {
		i.decision.Remaining = min(peeked.Remaining+i.request.Cost, peeked.Limit)
	}
}

// chargeLenient counts the lenient items of a call that passes.
func (s *Service) chargeLenient(ctx context.Context, items []item) error {
	together(items, func(it *item) {
		switch {
		case !it.lenient():
		case it.refund:
			if _, it.decision.Err = s.Limiter.Refund(it.request); it.decision.Err == nil {
				it.look(s.Limiter.Peek(ctx, it.request))
			}
		default:
			it.decision = s.Limiter.Allow(ctx, it.request)
			it.over = !it.decision.Allowed
		}
	})
	return firstError(items)
}

func firstError(items []item) error {
	for i := range items {
		if err := items[i].decision.Err; err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) answer(items []item, denied bool, now time.Time) *rlsv3.RateLimitResponse {
	response := &rlsv3.RateLimitResponse{
		OverallCode:          overall(denied),
		Statuses:             make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(items)),
		ResponseHeadersToAdd: s.headersOf(items, denied, now),
		DynamicMetadata:      s.metadata(items, denied, now),
	}
	for i := range items {
		response.Statuses[i] = items[i].status(now)
	}
	return response
}

func overall(denied bool) rlsv3.RateLimitResponse_Code {
	if denied {
		return rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return rlsv3.RateLimitResponse_OK
}

func (s *Service) headersOf(items []item, denied bool, now time.Time) []*corev3.HeaderValue {
	if s.Headers == HeadersAlways || denied && s.Headers == HeadersOnDenial {
		return headers(items, denied, now)
	}
	return nil
}

// outline returns the code and the remaining amount of a status.
func (i *item) outline() (code rlsv3.RateLimitResponse_Code, remaining uint32) {
	switch {
	case i.limit == nil:
		return overall(false), 0
	case i.limit.Unlimited:
		return overall(false), math.MaxUint32
	}
	return overall(i.over && !i.limit.Shadow), saturated(i.decision.Remaining)
}

// isOverridden reports whether an operator has set another limit than the rule's.
func (i *item) isOverridden() bool {
	return i.decision.Limit != i.limit.limit || i.decision.Duration != i.limit.duration
}

// untilReset returns the time until the current cell ends. For a denial it is at least the time until the request can
// pass, because this cell's cost still counts in the next cell.
func (i *item) untilReset(now time.Time) time.Duration {
	return max(0, i.decision.ResetAt.Sub(now), i.decision.RetryAfter)
}

func (i *item) status(now time.Time) *rlsv3.RateLimitResponse_DescriptorStatus {
	code, remaining := i.outline()
	status := &rlsv3.RateLimitResponse_DescriptorStatus{Code: code, LimitRemaining: remaining}
	if !i.limited() {
		return status
	}
	if status.CurrentLimit = i.limit.onTheWire; i.isOverridden() {
		status.CurrentLimit = i.overridden()
	}
	status.DurationUntilReset = durationpb.New(i.untilReset(now))
	return status
}

func (i *item) overridden() *rlsv3.RateLimitResponse_RateLimit {
	l := &rlsv3.RateLimitResponse_RateLimit{
		Name: i.limit.name, RequestsPerUnit: saturated(i.decision.Limit),
		Unit: i.limit.onTheWire.Unit, UnitMultiplier: i.limit.onTheWire.UnitMultiplier,
	}
	if d := i.decision.Duration; d != i.limit.duration {
		unit, n := wholeUnits(d)
		l.Unit, l.UnitMultiplier = unit, nil
		if n > 1 {
			l.UnitMultiplier = wrapperspb.UInt32(n)
		}
	}
	return l
}

func saturated(n int64) uint32 { return uint32(min(n, math.MaxUint32)) }
