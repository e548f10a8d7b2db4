package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// needs is the role that a procedure takes. One that is not here takes an admin.
var needs = map[string]controlplane.Role{
	controlv1connect.ControlServiceFleetProcedure:         controlplane.RoleViewer,
	controlv1connect.ControlServiceCleanupStatusProcedure: controlplane.RoleViewer,
	controlv1connect.ControlServiceCleanupRunProcedure:    controlplane.RoleOperator,
	controlv1connect.ControlServiceCleanupPauseProcedure:  controlplane.RoleOperator,
	controlv1connect.ControlServiceCleanupResumeProcedure: controlplane.RoleOperator,

	controlv1connect.HealthServiceGetHealthProcedure:  controlplane.RoleViewer,
	controlv1connect.HealthServiceDiagnoseProcedure:   controlplane.RoleOperator,
	controlv1connect.AuditServiceListAuditProcedure:   controlplane.RoleViewer,
	controlv1connect.AuditServiceExportAuditProcedure: controlplane.RoleViewer,

	controlv1connect.RolloutServiceRolloutStatusProcedure:  controlplane.RoleViewer,
	controlv1connect.RolloutServiceListRolloutsProcedure:   controlplane.RoleViewer,
	controlv1connect.RolloutServicePreviewRolloutProcedure: controlplane.RoleViewer,
	controlv1connect.RolloutServiceGetTuningProcedure:      controlplane.RoleViewer,
	controlv1connect.RolloutServiceListTuningsProcedure:    controlplane.RoleViewer,
	controlv1connect.RolloutServiceStartRolloutProcedure:   controlplane.RoleOperator,
	controlv1connect.RolloutServiceOperateRolloutProcedure: controlplane.RoleOperator,

	controlv1connect.RetirementServiceRetirementStatusProcedure: controlplane.RoleViewer,
	controlv1connect.RetirementServiceListRetirementsProcedure:  controlplane.RoleViewer,
	controlv1connect.RetirementServiceStartRetirementProcedure:  controlplane.RoleOperator,
	controlv1connect.RetirementServiceApproveRenameProcedure:    controlplane.RoleOperator,
	controlv1connect.RetirementServiceAbortRetirementProcedure:  controlplane.RoleOperator,
	controlv1connect.RetirementServiceApproveDropProcedure:      controlplane.RoleAdmin,

	controlv1connect.SettingsServiceListOverridesProcedure:     controlplane.RoleViewer,
	controlv1connect.SettingsServiceGetOverrideProcedure:       controlplane.RoleViewer,
	controlv1connect.SettingsServiceListNamespacesProcedure:    controlplane.RoleViewer,
	controlv1connect.SettingsServiceGetNamespaceProcedure:      controlplane.RoleViewer,
	controlv1connect.SettingsServiceListAllOverridesProcedure:  controlplane.RoleViewer,
	controlv1connect.SettingsServiceListAllNamespacesProcedure: controlplane.RoleViewer,
	controlv1connect.SettingsServiceListResetsProcedure:        controlplane.RoleViewer,
	controlv1connect.SettingsServiceSetOverrideProcedure:       controlplane.RoleOperator,
	controlv1connect.SettingsServiceChangeOverrideProcedure:    controlplane.RoleOperator,
	controlv1connect.SettingsServiceResetKeyProcedure:          controlplane.RoleOperator,
	controlv1connect.SettingsServiceDeleteOverrideProcedure:    controlplane.RoleOperator,
	controlv1connect.SettingsServiceSetNamespaceProcedure:      controlplane.RoleOperator,

	controlv1connect.TopKeysServiceTopKeysProcedure: controlplane.RoleViewer,
	controlv1connect.TopKeysServiceGetKeyProcedure:  controlplane.RoleViewer,

	controlv1connect.TopKeysServiceListHeldProcedure: controlplane.RoleViewer,

	controlv1connect.TopKeysServiceEstimateLimitsProcedure: controlplane.RoleViewer,

	controlv1connect.TokenServiceWhoAmIProcedure:      controlplane.RoleViewer,
	controlv1connect.TokenServiceCreateTokenProcedure: controlplane.RoleAdmin,
	controlv1connect.TokenServiceRotateTokenProcedure: controlplane.RoleAdmin,
	controlv1connect.TokenServiceRevokeTokenProcedure: controlplane.RoleAdmin,
	controlv1connect.TokenServiceListTokensProcedure:  controlplane.RoleAdmin,
}

type (
	identityKey struct{}
	holderKey   struct{}
)

// WithHolder is a context in which calls made in this process are those of the holder of
// a token, known by its hash. No request from outside has such a context.
func WithHolder(ctx context.Context, token controlplane.TokenHash) context.Context {
	return context.WithValue(ctx, holderKey{}, token)
}

// WithIdentity is a context in which calls made in this process are those of a part of
// it, without a token.
func WithIdentity(ctx context.Context, identity controlplane.Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, identity)
}

// authenticated requires a token for every call. The token's role must suffice, and its workspaces
// must include those of the request. It stores the token's holder in the context. Without
// Config.RequireTokens it requires nothing.
func (s *service) authenticated() connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if !s.RequireTokens {
				return next(ctx, req)
			}
			identity, err := s.identify(ctx, req.Header().Get("Authorization"), req.Spec().Procedure)
			if err != nil {
				return nil, err
			}
			if err := s.inScope(&identity, req); err != nil {
				return nil, err
			}
			return next(context.WithValue(ctx, identityKey{}, identity), req)
		}
	}
}

func (s *service) identify(ctx context.Context, authorization, procedure string) (controlplane.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	identity, err := s.holder(ctx, authorization)
	if errors.Is(err, controlplane.ErrUnauthenticated) {
		s.refused(failureOf(ctx, authorization))
		return identity, connect.NewError(connect.CodeUnauthenticated, err)
	}
	if err != nil {
		return identity, s.fail(ctx, procedure, err)
	}
	role, ok := needs[procedure]
	if !ok {
		role = controlplane.RoleAdmin
	}
	if !identity.Role.May(role) {
		s.refused(controlplane.AuthRole)
		kind := "token"
		if _, ok := s.certificateHolder(ctx); ok {
			kind = "the certificate of"
		}
		return identity, connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("%s %s has the role %s; this requires the role %s", kind, identity.Name, identity.Role, role))
	}
	return identity, nil
}

// failureOf is why a call without an identity has none.
func failureOf(ctx context.Context, authorization string) controlplane.AuthFailure {
	if _, session := ctx.Value(holderKey{}).(controlplane.TokenHash); session || authorization != "" {
		return controlplane.AuthUnknownToken
	}
	return controlplane.AuthNoToken
}

func (s *service) refused(reason controlplane.AuthFailure) {
	if s.AuthFailed != nil {
		s.AuthFailed(reason)
	}
}

// holder is who a call is made by: as its context has it, or else its certificate, or its token.
func (s *service) holder(ctx context.Context, authorization string) (controlplane.Identity, error) {
	if identity, ok := ctx.Value(identityKey{}).(controlplane.Identity); ok {
		return identity, nil
	}
	if identity, ok := s.certificateHolder(ctx); ok {
		return identity, nil
	}
	if hash, ok := ctx.Value(holderKey{}).(controlplane.TokenHash); ok {
		return s.Tokens.Holder(ctx, hash)
	}
	scheme, secret, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "bearer") || secret == "" {
		but := ""
		if subject, ok := ctx.Value(certificateKey{}).(string); ok {
			but = fmt.Sprintf("; the certificate of %q has no role here", subject)
		}
		return controlplane.Identity{}, fmt.Errorf("%w: this API requires a token: Authorization: Bearer …%s",
			controlplane.ErrUnauthenticated, but)
	}
	return s.Tokens.Authenticate(ctx, strings.TrimSpace(secret))
}

// operatorMessage is a request that says who and why.
type operatorMessage interface {
	GetActor() string
	GetReason() string
}

// byOf is who makes a change, and why. Where tokens are required, it is the subject of the certificate or the holder of
// the token, whatever the request says.
func byOf(ctx context.Context, msg operatorMessage) (controlplane.By, error) {
	by := controlplane.By{Actor: msg.GetActor(), Reason: msg.GetReason()}
	if identity, ok := ctx.Value(identityKey{}).(controlplane.Identity); ok {
		by.Actor = identity.Name
	}
	return by, by.Validate()
}
