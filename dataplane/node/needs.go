package node

import (
	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// need is the permission that a procedure requires.
type need struct {
	action    access.Action
	workspace string // of all keys of the procedure; empty: the service checks the workspaces in the messages
}

// actions are the actions that the procedures of the service require.
var actions = map[string]access.Action{
	weirv1connect.RateLimitServiceLimitProcedure:        access.ActionLimit,
	weirv1connect.RateLimitServiceLimitManyProcedure:    access.ActionLimit,
	weirv1connect.RateLimitServiceLimitStreamProcedure:  access.ActionLimit,
	weirv1connect.RateLimitServicePeekProcedure:         access.ActionLimit,
	weirv1connect.RateLimitServiceRefundProcedure:       access.ActionLimit,
	weirv1connect.RateLimitServiceReserveProcedure:      access.ActionLimit,
	weirv1connect.RateLimitServiceSettleProcedure:       access.ActionLimit,
	weirv1connect.RateLimitServiceCancelProcedure:       access.ActionLimit,
	weirv1connect.RateLimitServiceExtendProcedure:       access.ActionLimit,
	weirv1connect.RateLimitServiceAcquireProcedure:      access.ActionLimit,
	weirv1connect.RateLimitServiceRenewProcedure:        access.ActionLimit,
	weirv1connect.RateLimitServiceReleaseProcedure:      access.ActionLimit,
	weirv1connect.RateLimitServiceExplainProcedure:      access.ActionRead,
	weirv1connect.RateLimitServiceExplainLeaseProcedure: access.ActionRead,
	weirv1connect.RateLimitServiceTopKeysProcedure:      access.ActionRead,
}

var kuadrantProcedures = []string{rls.CheckProcedure, rls.ReportProcedure, rls.ReserveProcedure, rls.CommitProcedure}

// needsOf returns the permissions that all procedures require. A token with a scope may only call
// procedures that are in the map.
func needsOf(c *Config) map[string]need {
	needs := make(map[string]need)
	for procedure, action := range actions { // the service checks the workspaces in its messages
		needs[procedure] = need{action: action}
	}
	if c.RLS != nil {
		for _, procedure := range append(kuadrantProcedures, rls.Procedure) {
			needs[procedure] = need{access.ActionLimit, c.RLS.Workspace}
		}
	}
	if c.Routes != nil {
		for name, action := range map[string]access.Action{"limit": access.ActionLimit, "multiLimit": access.ActionLimit,
			"getOverride": access.ActionRead, "listOverrides": access.ActionRead, "setOverride": access.ActionOverrides,
			"deleteOverride": access.ActionOverrides} {
			needs[routes.Paths[name]] = need{action, c.Routes.Workspace}
		}
	}
	if c.API != nil && c.API.Workspace != "" {
		for _, m := range c.API.Methods {
			limited := need{access.ActionLimit, c.API.Workspace}
			needs[c.API.procedure(m)], needs[m.Path] = limited, limited
		}
	}
	return needs
}

// anyProcedure stands for reflection, which any token may use: it only shows the .proto files.
const anyProcedure = ""

// check returns an error if the scope does not allow a procedure.
func check(s *access.Scope, needs map[string]need, procedure string) error {
	if s == nil || procedure == anyProcedure {
		return nil
	}
	n, ok := needs[procedure]
	if !ok || !s.May(n.action) || n.workspace != "" && !s.Holds(n.workspace) {
		return access.OutOfScope()
	}
	return nil
}
