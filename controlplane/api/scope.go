package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/workspaces"
)

// scopes reports for each procedure whether a caller whose token has workspaces may make a request. A procedure that is
// not here is about the fleet, and such a caller may not call it.
var scopes = map[string]func(caller *controlplane.Identity, request any) bool{
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

	// Their handlers leave out other workspaces.
	controlv1connect.TopKeysServiceTopKeysProcedure:            inNamedIfAny,
	controlv1connect.TopKeysServiceListHeldProcedure:           inNamedIfAny,
	controlv1connect.SettingsServiceListAllOverridesProcedure:  always,
	controlv1connect.SettingsServiceListAllNamespacesProcedure: always,

	controlv1connect.AuditServiceListAuditProcedure: ofItself,
	controlv1connect.TokenServiceWhoAmIProcedure:    always,
}

// errScope does not depend on what exists: another workspace and one that there is not are refused alike.
var errScope = errors.New("the token is valid for some workspaces alone, and may not do this, or not in this workspace")

// inScope refuses a request outside of the workspaces that its caller's token is valid for.
func (s *service) inScope(caller *controlplane.Identity, req connect.AnyRequest) error {
	if caller.Workspaces.All() {
		return nil
	}
	if may, ok := scopes[req.Spec().Procedure]; ok && may(caller, req.Any()) {
		return nil
	}
	s.refused(controlplane.AuthScope)
	return connect.NewError(connect.CodePermissionDenied, errScope)
}

func always(*controlplane.Identity, any) bool { return true }

// inNamed is for requests that name one workspace.
func inNamed(caller *controlplane.Identity, request any) bool {
	named, ok := request.(interface{ GetWorkspace() string })
	return ok && caller.Workspaces.Has(named.GetWorkspace())
}

// inNamedIfAny is for requests about one workspace, or about all that the caller may see.
func inNamedIfAny(caller *controlplane.Identity, request any) bool {
	named, ok := request.(interface{ GetWorkspace() string })
	return ok && (named.GetWorkspace() == "" || caller.Workspaces.Has(named.GetWorkspace()))
}

func inOverride(caller *controlplane.Identity, request any) bool {
	set, ok := request.(*controlv1.SetOverrideRequest)
	return ok && caller.Workspaces.Has(set.GetOverride().GetWorkspace())
}

// inChanges is for requests about several workspaces, each of which has to be the caller's.
func inChanges(caller *controlplane.Identity, request any) bool {
	estimate, ok := request.(*controlv1.EstimateLimitsRequest)
	ok = ok && len(estimate.GetChanges()) > 0
	for _, c := range estimate.GetChanges() {
		ok = ok && caller.Workspaces.Has(c.GetWorkspace())
	}
	return ok
}

// ofItself is for the audit log, of which a caller with workspaces may read what it has changed itself. It may not
// filter by workspace instead: subjects are written with '/' between the names, and workspaces may have that in theirs.
func ofItself(caller *controlplane.Identity, request any) bool {
	list, ok := request.(*controlv1.ListAuditRequest)
	return ok && list.GetActor() == caller.Name
}

// visible returns the workspaces that the caller of a call may see.
func visible(ctx context.Context) *workspaces.Set {
	identity, _ := ctx.Value(identityKey{}).(controlplane.Identity)
	return identity.Workspaces
}
