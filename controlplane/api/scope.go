package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/workspaces"
)

// scope reports whether a caller whose token has workspaces may make a request.
type scope func(caller *access.Identity, request any) bool

// errScope is the same whether or not the workspace exists, so it does not reveal which workspaces
// there are.
var errScope = errors.New("the token is limited to some workspaces: it may not do this, or not in this workspace")

// inScope returns an error for a request outside the workspaces of its caller's token.
func (s *service) inScope(caller *access.Identity, req connect.AnyRequest) error {
	if caller.Workspaces.All() {
		return nil
	}
	if may := rules[req.Spec().Procedure].scope; may != nil && may(caller, req.Any()) {
		return nil
	}
	s.refused(controlplane.AuthScope)
	return connect.NewError(connect.CodePermissionDenied, errScope)
}

// always accepts requests whose handlers leave out other workspaces themselves.
func always(*access.Identity, any) bool { return true }

// inNamed accepts requests for a workspace of the caller.
func inNamed(caller *access.Identity, request any) bool {
	named, ok := request.(interface{ GetWorkspace() string })
	return ok && caller.Workspaces.Has(named.GetWorkspace())
}

// inNamedIfAny accepts requests for a workspace of the caller, and requests without a workspace, whose handlers leave
// out other workspaces.
func inNamedIfAny(caller *access.Identity, request any) bool {
	named, ok := request.(interface{ GetWorkspace() string })
	return ok && (named.GetWorkspace() == "" || caller.Workspaces.Has(named.GetWorkspace()))
}

func inOverride(caller *access.Identity, request any) bool {
	set, ok := request.(*controlv1.SetOverrideRequest)
	return ok && caller.Workspaces.Has(set.GetOverride().GetWorkspace())
}

// inChanges accepts requests for several workspaces if all of them are the caller's.
func inChanges(caller *access.Identity, request any) bool {
	estimate, ok := request.(*controlv1.EstimateLimitsRequest)
	ok = ok && len(estimate.GetChanges()) > 0
	for _, c := range estimate.GetChanges() {
		ok = ok && caller.Workspaces.Has(c.GetWorkspace())
	}
	return ok
}

// ofItself accepts requests for the audit log. A caller with workspaces can read only its own changes. A filter by
// workspace would not suffice, because subjects separate names by '/', and the name of a workspace can contain a '/'.
func ofItself(caller *access.Identity, request any) bool {
	list, ok := request.(*controlv1.ListAuditRequest)
	return ok && list.GetActor() == caller.Name
}

// visible returns the workspaces that the caller can see.
func visible(ctx context.Context) *workspaces.Set {
	identity, _ := ctx.Value(identityKey{}).(access.Identity)
	return identity.Workspaces
}
