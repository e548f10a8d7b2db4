package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

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

// Scope restricts a token to workspaces and actions. A nil Scope allows everything. A Scope does
// not change.
type Scope struct {
	workspaces *workspaces.Set
	actions    Action
	key        string // the same for all tokens with the same workspaces; empty if workspaces is nil
}

// ErrScope is wrapped by the errors of calls that a token's scope does not allow. Its text is the
// same whether or not the workspace exists.
var ErrScope = errors.New("the token may not do this, or not in this workspace")

// IsOutOfScope reports whether err is the error of a call that a token's scope does not allow.
func IsOutOfScope(err error) bool { return errors.Is(err, ErrScope) }

// OutOfScope returns the error of such a call, as the caller gets it.
func OutOfScope() error { return connect.NewError(connect.CodePermissionDenied, ErrScope) }

// May reports whether the scope allows an action.
func (s *Scope) May(a Action) bool { return s == nil || s.actions&a != 0 }

// Holds reports whether the scope has a workspace.
func (s *Scope) Holds(workspace string) bool {
	return s == nil || s.workspaces.Has(workspace)
}

// parseScope reads the settings of a token's line, each as name=value.
func parseScope(settings []string) (*Scope, error) {
	s := &Scope{}
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

func (s *Scope) readWorkspaces(value string) error {
	read, err := workspaces.Parse(value)
	if err != nil {
		return fmt.Errorf("has %w", err)
	}
	s.workspaces, s.key = read, scopeKey(read)
	return nil
}

func (s *Scope) readActions(value string) error {
	for name := range strings.SplitSeq(value, ",") {
		a, ok := ActionNames[name]
		if !ok {
			return fmt.Errorf("has %.64q (limit, read, overrides, metrics or profiles)", name)
		}
		s.actions |= a
	}
	return nil
}

// ScopeIn returns the scope of a call, or nil if there is none. The scope of a stream may change
// while it is open.
func ScopeIn(ctx context.Context) *Scope {
	at, _ := ctx.Value(inContext{}).(*atomic.Pointer[Scope])
	if at == nil {
		return nil
	}
	return at.Load()
}

type inContext struct{}

// WithScope returns ctx itself if s is nil, which saves an allocation on nodes whose tokens have no
// scopes.
func WithScope(ctx context.Context, s *Scope) context.Context {
	if s == nil {
		return ctx
	}
	at := new(atomic.Pointer[Scope])
	at.Store(s)
	return WithScopeAt(ctx, at)
}

// WithScopeAt is WithScope for a stream, whose scope may change while it is open.
func WithScopeAt(ctx context.Context, at *atomic.Pointer[Scope]) context.Context {
	return context.WithValue(ctx, inContext{}, at)
}
