package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// scopes reports, for each procedure, whether a caller whose token has workspaces may make a
// request. Procedures that are missing here concern the whole fleet, and such a caller must not
// call them.
var scopes = map[string]func(caller *access.Identity, request any) bool{
	controlv1connect.SettingsServiceListOverridesProcedure:  inNamed,
	controlv1connect.SettingsServiceGetOverrideProcedure:    inNamed,
	controlv1connect.SettingsServiceChangeOverrideProcedure: inNamed,
	controlv1connect.SettingsServiceDeleteOverrideProcedure: inNamed,
	controlv1connect.SettingsServiceListNamespacesProcedure: inNamed,
	controlv1connect.SettingsServiceGetNamespaceProcedure:   inNamed,
	controlv1connect.SettingsServiceSetNamespaceProcedure:   inNamed,
	controlv1connect.SettingsServiceResetKeyProcedure:       inNamed,
	controlv1connect.SettingsServiceListResetsProcedure:     inNamed,
	controlv1connect.TopKeysServiceGetKeyProcedure:          inNamed,

	controlv1connect.SettingsServiceSetOverrideProcedure:   inOverride,
	controlv1connect.TopKeysServiceEstimateLimitsProcedure: inChanges,

	// The handlers of these procedures leave out other workspaces themselves.
	controlv1connect.TopKeysServiceTopKeysProcedure:            inNamedIfAny,
	controlv1connect.TopKeysServiceListHeldProcedure:           inNamedIfAny,
	controlv1connect.SettingsServiceListAllOverridesProcedure:  always,
	controlv1connect.SettingsServiceListAllNamespacesProcedure: always,

	controlv1connect.AuditServiceListAuditProcedure: ofItself,
	controlv1connect.TokenServiceWhoAmIProcedure:    always,
}

// errScope is the same whether or not the workspace exists, so it does not reveal which workspaces
// there are.
var errScope = errors.New("the token is limited to some workspaces: it may not do this, or not in this workspace")

// inScope returns an error for a request outside the workspaces of its caller's token.
func (s *service) inScope(caller *access.Identity, req connect.AnyRequest) error {
	if caller.Workspaces.All() {
		return nil
	}
	if may, ok := scopes[req.Spec().Procedure]; ok && may(caller, req.Any()) {
		return nil
	}
	s.refused(controlplane.AuthScope)
	return connect.NewError(connect.CodePermissionDenied, errScope)
}

func always(*access.Identity, any) bool { return true }

// inNamed judges requests that name one workspace.
func inNamed(caller *access.Identity, request any) bool {
	named, ok := request.(interface{ GetWorkspace() string })
	return ok && caller.Workspaces.Has(named.GetWorkspace())
}

// inNamedIfAny judges requests about one workspace, or about all workspaces that the caller may
// see.
func inNamedIfAny(caller *access.Identity, request any) bool {
	named, ok := request.(interface{ GetWorkspace() string })
	return ok && (named.GetWorkspace() == "" || caller.Workspaces.Has(named.GetWorkspace()))
}

func inOverride(caller *access.Identity, request any) bool {
	set, ok := request.(*controlv1.SetOverrideRequest)
	return ok && caller.Workspaces.Has(set.GetOverride().GetWorkspace())
}

// inChanges judges requests about several workspaces: all of them must be the caller's.
func inChanges(caller *access.Identity, request any) bool {
	estimate, ok := request.(*controlv1.EstimateLimitsRequest)
	ok = ok && len(estimate.GetChanges()) > 0
	for _, c := range estimate.GetChanges() {
		ok = ok && caller.Workspaces.Has(c.GetWorkspace())
	}
	return ok
}

// ofItself judges requests for the audit log. A caller with workspaces may only read its own
// changes. A filter by workspace would not do, because subjects separate the names by '/', and
// workspaces may contain a '/'.
func ofItself(caller *access.Identity, request any) bool {
	list, ok := request.(*controlv1.ListAuditRequest)
	return ok && list.GetActor() == caller.Name
}

// visible returns the workspaces that the caller may see.
func visible(ctx context.Context) *workspaces.Set {
	identity, _ := ctx.Value(identityKey{}).(access.Identity)
	return identity.Workspaces
}
