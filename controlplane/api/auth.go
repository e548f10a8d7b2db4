package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// needs is the role that a procedure takes. One that is not here takes an admin.
var needs = map[string]access.Role{
	controlv1connect.ControlServiceFleetProcedure:         access.RoleViewer,
	controlv1connect.ControlServiceCleanupStatusProcedure: access.RoleViewer,
	controlv1connect.ControlServiceCleanupRunProcedure:    access.RoleOperator,
	controlv1connect.ControlServiceCleanupPauseProcedure:  access.RoleOperator,
	controlv1connect.ControlServiceCleanupResumeProcedure: access.RoleOperator,

	controlv1connect.HealthServiceGetHealthProcedure:  access.RoleViewer,
	controlv1connect.HealthServiceDiagnoseProcedure:   access.RoleOperator,
	controlv1connect.AuditServiceListAuditProcedure:   access.RoleViewer,
	controlv1connect.AuditServiceExportAuditProcedure: access.RoleViewer,

	controlv1connect.RolloutServiceRolloutStatusProcedure:  access.RoleViewer,
	controlv1connect.RolloutServiceListRolloutsProcedure:   access.RoleViewer,
	controlv1connect.RolloutServicePreviewRolloutProcedure: access.RoleViewer,
	controlv1connect.RolloutServiceGetTuningProcedure:      access.RoleViewer,
	controlv1connect.RolloutServiceListTuningsProcedure:    access.RoleViewer,
	controlv1connect.RolloutServiceStartRolloutProcedure:   access.RoleOperator,
	controlv1connect.RolloutServiceOperateRolloutProcedure: access.RoleOperator,

	controlv1connect.RetirementServiceRetirementStatusProcedure: access.RoleViewer,
	controlv1connect.RetirementServiceListRetirementsProcedure:  access.RoleViewer,
	controlv1connect.RetirementServiceStartRetirementProcedure:  access.RoleOperator,
	controlv1connect.RetirementServiceApproveRenameProcedure:    access.RoleOperator,
	controlv1connect.RetirementServiceAbortRetirementProcedure:  access.RoleOperator,
	controlv1connect.RetirementServiceApproveDropProcedure:      access.RoleAdmin,

	controlv1connect.SettingsServiceListOverridesProcedure:     access.RoleViewer,
	controlv1connect.SettingsServiceGetOverrideProcedure:       access.RoleViewer,
	controlv1connect.SettingsServiceListNamespacesProcedure:    access.RoleViewer,
	controlv1connect.SettingsServiceGetNamespaceProcedure:      access.RoleViewer,
	controlv1connect.SettingsServiceListAllOverridesProcedure:  access.RoleViewer,
	controlv1connect.SettingsServiceListAllNamespacesProcedure: access.RoleViewer,
	controlv1connect.SettingsServiceListResetsProcedure:        access.RoleViewer,
	controlv1connect.SettingsServiceSetOverrideProcedure:       access.RoleOperator,
	controlv1connect.SettingsServiceChangeOverrideProcedure:    access.RoleOperator,
	controlv1connect.SettingsServiceResetKeyProcedure:          access.RoleOperator,
	controlv1connect.SettingsServiceDeleteOverrideProcedure:    access.RoleOperator,
	controlv1connect.SettingsServiceSetNamespaceProcedure:      access.RoleOperator,

	controlv1connect.TopKeysServiceTopKeysProcedure: access.RoleViewer,
	controlv1connect.TopKeysServiceGetKeyProcedure:  access.RoleViewer,

	controlv1connect.TopKeysServiceListHeldProcedure: access.RoleViewer,

	controlv1connect.TopKeysServiceEstimateLimitsProcedure: access.RoleViewer,

	controlv1connect.TokenServiceWhoAmIProcedure:      access.RoleViewer,
	controlv1connect.TokenServiceCreateTokenProcedure: access.RoleAdmin,
	controlv1connect.TokenServiceRotateTokenProcedure: access.RoleAdmin,
	controlv1connect.TokenServiceRevokeTokenProcedure: access.RoleAdmin,
	controlv1connect.TokenServiceListTokensProcedure:  access.RoleAdmin,
}

type (
	identityKey struct{}
	holderKey   struct{}
)

// WithHolder is a context in which calls made in this process are those of the holder of
// a token, known by its hash. No request from outside has such a context.
func WithHolder(ctx context.Context, token access.TokenHash) context.Context {
	return context.WithValue(ctx, holderKey{}, token)
}

// WithIdentity is a context in which calls made in this process are those of a part of
// it, without a token.
func WithIdentity(ctx context.Context, identity access.Identity) context.Context {
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

func (s *service) identify(ctx context.Context, authorization, procedure string) (access.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	identity, err := s.holder(ctx, authorization)
	if errors.Is(err, access.ErrUnauthenticated) {
		s.refused(failureOf(ctx, authorization))
		return identity, connect.NewError(connect.CodeUnauthenticated, err)
	}
	if err != nil {
		return identity, s.fail(ctx, procedure, err)
	}
	role, ok := needs[procedure]
	if !ok {
		role = access.RoleAdmin
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
	if _, session := ctx.Value(holderKey{}).(access.TokenHash); session || authorization != "" {
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
func (s *service) holder(ctx context.Context, authorization string) (access.Identity, error) {
	if identity, ok := ctx.Value(identityKey{}).(access.Identity); ok {
		return identity, nil
	}
	if identity, ok := s.certificateHolder(ctx); ok {
		return identity, nil
	}
	if hash, ok := ctx.Value(holderKey{}).(access.TokenHash); ok {
		return s.Tokens.Holder(ctx, hash)
	}
	scheme, secret, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "bearer") || secret == "" {
		but := ""
		if subject, ok := ctx.Value(certificateKey{}).(string); ok {
			but = fmt.Sprintf("; the certificate of %q has no role here", subject)
		}
		return access.Identity{}, fmt.Errorf("%w: this API requires a token: Authorization: Bearer …%s",
			access.ErrUnauthenticated, but)
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
	if identity, ok := ctx.Value(identityKey{}).(access.Identity); ok {
		by.Actor = identity.Name
	}
	return by, by.Validate()
}
