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

// needsOf returns the permissions that all procedures require. A token with a scope may only call
// procedures that are in the map.
func needsOf(c *Config) map[string]need {
	needs := map[string]need{
		weirv1connect.RateLimitServiceLimitProcedure:        {action: access.ActionLimit},
		weirv1connect.RateLimitServiceLimitManyProcedure:    {action: access.ActionLimit},
		weirv1connect.RateLimitServiceLimitStreamProcedure:  {action: access.ActionLimit},
		weirv1connect.RateLimitServicePeekProcedure:         {action: access.ActionLimit},
		weirv1connect.RateLimitServiceRefundProcedure:       {action: access.ActionLimit},
		weirv1connect.RateLimitServiceReserveProcedure:      {action: access.ActionLimit},
		weirv1connect.RateLimitServiceSettleProcedure:       {action: access.ActionLimit},
		weirv1connect.RateLimitServiceCancelProcedure:       {action: access.ActionLimit},
		weirv1connect.RateLimitServiceExtendProcedure:       {action: access.ActionLimit},
		weirv1connect.RateLimitServiceAcquireProcedure:      {action: access.ActionLimit},
		weirv1connect.RateLimitServiceRenewProcedure:        {action: access.ActionLimit},
		weirv1connect.RateLimitServiceReleaseProcedure:      {action: access.ActionLimit},
		weirv1connect.RateLimitServiceExplainProcedure:      {action: access.ActionRead},
		weirv1connect.RateLimitServiceExplainLeaseProcedure: {action: access.ActionRead},
		weirv1connect.RateLimitServiceTopKeysProcedure:      {action: access.ActionRead},
	}
	if c.RLS != nil {
		for _, procedure := range []string{rls.Procedure, rls.CheckProcedure, rls.ReportProcedure, rls.ReserveProcedure,
			rls.CommitProcedure} {
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
