package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// Action is something that a token may be used for.
type Action uint8

// The actions that a token can allow. ActionNames has their names in a tokens file.
const (
	ActionLimit     Action = 1 << iota // decide and count: Limit, Reserve, Acquire, Envoy's and Kuadrant's calls, ...
	ActionRead                         // read: Explain, ExplainLease, TopKeys, and overrides by routes below /v2
	ActionOverrides                    // change overrides below /v2
	ActionMetrics                      // /metrics
	ActionProfiles                     // /debug/pprof; a profile may hold anything in the node's memory
)

// ActionNames maps the names in a tokens file to actions.
var ActionNames = map[string]Action{"limit": ActionLimit, "read": ActionRead, "overrides": ActionOverrides,
	"metrics": ActionMetrics, "profiles": ActionProfiles}

// aboutKeys are the default actions of a token with workspaces. They lack metrics and profiles,
// which show all workspaces.
const aboutKeys = ActionLimit | ActionRead | ActionOverrides

// scope restricts a token to workspaces and actions. A nil scope allows everything. A scope does
// not change.
type scope struct {
	workspaces *workspaces.Set
	actions    Action
	key        string // the same for all tokens with the same workspaces; empty if workspaces is nil
}

// errScope is wrapped by the errors of calls that a token's scope does not allow. Its text is the
// same whether or not the workspace exists.
var errScope = errors.New("the token may not do this, or not in this workspace")

func isOutOfScope(err error) bool { return errors.Is(err, errScope) }

func outOfScope() error { return connect.NewError(connect.CodePermissionDenied, errScope) }

func (s *scope) may(a Action) bool { return s == nil || s.actions&a != 0 }

func (s *scope) holds(workspace string) bool {
	return s == nil || s.workspaces.Has(workspace)
}

// parseScope reads the settings of a token's line, each as name=value.
func parseScope(settings []string) (*scope, error) {
	s := &scope{}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		var err error
		switch {
		case name == "workspaces" && s.workspaces == nil:
			err = s.readWorkspaces(value)
		case name == "actions" && s.actions == 0:
			err = s.readActions(value)
		case name == "workspaces" || name == "actions":
			err = errors.New("occurs twice")
		default:
			err = errors.New("is unknown (workspaces, actions or expires)")
		}
		if err != nil {
			return nil, fmt.Errorf("%.64q %w", name, err)
		}
	}
	switch {
	case len(settings) == 0:
		return nil, nil
	case s.actions == 0:
		s.actions = aboutKeys
	}
	return s, nil
}

func (s *scope) readWorkspaces(value string) error {
	read, err := workspaces.Parse(value)
	if err != nil {
		return fmt.Errorf("has %w", err)
	}
	s.workspaces, s.key = read, scopeKey(read)
	return nil
}

func (s *scope) readActions(value string) error {
	for name := range strings.SplitSeq(value, ",") {
		a, ok := ActionNames[name]
		if !ok {
			return fmt.Errorf("has %.64q (limit, read, overrides, metrics or profiles)", name)
		}
		s.actions |= a
	}
	return nil
}

// need is the permission that a procedure requires.
type need struct {
	action    Action
	workspace string // of all keys of the procedure; empty: the service checks the workspaces in the messages
}

// needsOf returns the permissions that all procedures require. A token with a scope may only call
// procedures that are in the map.
func needsOf(c *Config) map[string]need {
	needs := map[string]need{
		weirv1connect.RateLimitServiceLimitProcedure:        {action: ActionLimit},
		weirv1connect.RateLimitServiceLimitManyProcedure:    {action: ActionLimit},
		weirv1connect.RateLimitServiceLimitStreamProcedure:  {action: ActionLimit},
		weirv1connect.RateLimitServicePeekProcedure:         {action: ActionLimit},
		weirv1connect.RateLimitServiceRefundProcedure:       {action: ActionLimit},
		weirv1connect.RateLimitServiceReserveProcedure:      {action: ActionLimit},
		weirv1connect.RateLimitServiceSettleProcedure:       {action: ActionLimit},
		weirv1connect.RateLimitServiceCancelProcedure:       {action: ActionLimit},
		weirv1connect.RateLimitServiceExtendProcedure:       {action: ActionLimit},
		weirv1connect.RateLimitServiceAcquireProcedure:      {action: ActionLimit},
		weirv1connect.RateLimitServiceRenewProcedure:        {action: ActionLimit},
		weirv1connect.RateLimitServiceReleaseProcedure:      {action: ActionLimit},
		weirv1connect.RateLimitServiceExplainProcedure:      {action: ActionRead},
		weirv1connect.RateLimitServiceExplainLeaseProcedure: {action: ActionRead},
		weirv1connect.RateLimitServiceTopKeysProcedure:      {action: ActionRead},
	}
	if c.RLS != nil {
		for _, procedure := range []string{rls.Procedure, rls.CheckProcedure, rls.ReportProcedure, rls.ReserveProcedure,
			rls.CommitProcedure} {
			needs[procedure] = need{ActionLimit, c.RLS.Workspace}
		}
	}
	if c.Routes != nil {
		for name, action := range map[string]Action{"limit": ActionLimit, "multiLimit": ActionLimit,
			"getOverride": ActionRead, "listOverrides": ActionRead, "setOverride": ActionOverrides,
			"deleteOverride": ActionOverrides} {
			needs[routes.Paths[name]] = need{action, c.Routes.Workspace}
		}
	}
	if c.API != nil && c.API.Workspace != "" {
		for _, m := range c.API.Methods {
			needs[c.API.procedure(m)], needs[m.Path] = need{ActionLimit, c.API.Workspace}, need{ActionLimit, c.API.Workspace}
		}
	}
	return needs
}

// anyProcedure stands for reflection, which any token may use: it only shows the .proto files.
const anyProcedure = ""

// check returns an error if the scope does not allow a procedure.
func (s *scope) check(needs map[string]need, procedure string) error {
	if s == nil || procedure == anyProcedure {
		return nil
	}
	n, ok := needs[procedure]
	if !ok || !s.may(n.action) || n.workspace != "" && !s.holds(n.workspace) {
		return outOfScope()
	}
	return nil
}

// scopeIn returns the scope of a call, or nil if there is none. The scope of a stream may change
// while it is open.
func scopeIn(ctx context.Context) *scope {
	at, _ := ctx.Value(scopeKeyOfContext{}).(*atomic.Pointer[scope])
	if at == nil {
		return nil
	}
	return at.Load()
}

type scopeKeyOfContext struct{}

// withScope returns ctx itself if s is nil, which saves an allocation on nodes whose tokens have no
// scopes.
func withScope(ctx context.Context, s *scope) context.Context {
	if s == nil {
		return ctx
	}
	at := new(atomic.Pointer[scope])
	at.Store(s)
	return withScopeAt(ctx, at)
}

func withScopeAt(ctx context.Context, at *atomic.Pointer[scope]) context.Context {
	return context.WithValue(ctx, scopeKeyOfContext{}, at)
}
