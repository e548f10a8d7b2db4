package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// rule is the role that a procedure requires, the workspaces that it concerns, and the timeout of its calls.
type rule struct {
	role    access.Role   // empty: admin
	scope   scope         // nil: it concerns the whole fleet, so callers whose token has workspaces must not call it
	timeout time.Duration // 0: lookTimeout
}

// rules are the rules of all procedures.
var rules = map[string]rule{
	controlv1connect.ControlServiceFleetProcedure:         {role: access.RoleViewer},
	controlv1connect.ControlServiceCleanupStatusProcedure: {role: access.RoleViewer},
	controlv1connect.ControlServiceCleanupRunProcedure:    {role: access.RoleOperator, timeout: runTimeout},
	controlv1connect.ControlServiceCleanupPauseProcedure:  {role: access.RoleOperator, timeout: changeTimeout},
	controlv1connect.ControlServiceCleanupResumeProcedure: {role: access.RoleOperator, timeout: changeTimeout},

	controlv1connect.HealthServiceGetHealthProcedure:  {role: access.RoleViewer, timeout: healthTimeout},
	controlv1connect.HealthServiceDiagnoseProcedure:   {role: access.RoleOperator, timeout: healthTimeout},
	controlv1connect.AuditServiceListAuditProcedure:   {role: access.RoleViewer, scope: ofItself},
	controlv1connect.AuditServiceExportAuditProcedure: {role: access.RoleViewer},

	controlv1connect.RolloutServiceRolloutStatusProcedure:  {role: access.RoleViewer},
	controlv1connect.RolloutServiceListRolloutsProcedure:   {role: access.RoleViewer},
	controlv1connect.RolloutServicePreviewRolloutProcedure: {role: access.RoleViewer, timeout: runTimeout},
	controlv1connect.RolloutServiceGetTuningProcedure:      {role: access.RoleViewer},
	controlv1connect.RolloutServiceListTuningsProcedure:    {role: access.RoleViewer},
	controlv1connect.RolloutServiceStartRolloutProcedure:   {role: access.RoleOperator, timeout: changeTimeout},
	controlv1connect.RolloutServiceOperateRolloutProcedure: {role: access.RoleOperator, timeout: changeTimeout},

	controlv1connect.RetirementServiceRetirementStatusProcedure: {role: access.RoleViewer},
	controlv1connect.RetirementServiceListRetirementsProcedure:  {role: access.RoleViewer},
	controlv1connect.RetirementServiceStartRetirementProcedure:  {role: access.RoleOperator, timeout: changeTimeout},
	controlv1connect.RetirementServiceApproveRenameProcedure:    {role: access.RoleOperator, timeout: changeTimeout},
	controlv1connect.RetirementServiceAbortRetirementProcedure:  {role: access.RoleOperator, timeout: changeTimeout},
	controlv1connect.RetirementServiceApproveDropProcedure:      {role: access.RoleAdmin, timeout: changeTimeout},

	controlv1connect.SettingsServiceListOverridesProcedure:     {role: access.RoleViewer, scope: inNamed},
	controlv1connect.SettingsServiceGetOverrideProcedure:       {role: access.RoleViewer, scope: inNamed},
	controlv1connect.SettingsServiceListNamespacesProcedure:    {role: access.RoleViewer, scope: inNamed},
	controlv1connect.SettingsServiceGetNamespaceProcedure:      {role: access.RoleViewer, scope: inNamed},
	controlv1connect.SettingsServiceListAllOverridesProcedure:  {role: access.RoleViewer, scope: always},
	controlv1connect.SettingsServiceListAllNamespacesProcedure: {role: access.RoleViewer, scope: always},
	controlv1connect.SettingsServiceListResetsProcedure:        {role: access.RoleViewer, scope: inNamed},
	controlv1connect.SettingsServiceSetOverrideProcedure:       {role: access.RoleOperator, scope: inOverride},
	controlv1connect.SettingsServiceChangeOverrideProcedure:    {role: access.RoleOperator, scope: inNamed},
	controlv1connect.SettingsServiceResetKeyProcedure:          {role: access.RoleOperator, scope: inNamed},
	controlv1connect.SettingsServiceDeleteOverrideProcedure:    {role: access.RoleOperator, scope: inNamed},
	controlv1connect.SettingsServiceSetNamespaceProcedure:      {role: access.RoleOperator, scope: inNamed},

	controlv1connect.TopKeysServiceTopKeysProcedure:        {role: access.RoleViewer, scope: inNamedIfAny},
	controlv1connect.TopKeysServiceGetKeyProcedure:         {role: access.RoleViewer, scope: inNamed},
	controlv1connect.TopKeysServiceListKeysProcedure:       {role: access.RoleViewer, scope: inNamed},
	controlv1connect.TopKeysServiceGetUsageProcedure:       {role: access.RoleViewer, scope: inNamedIfAny},
	controlv1connect.TopKeysServiceListHeldProcedure:       {role: access.RoleViewer, scope: inNamedIfAny},
	controlv1connect.TopKeysServiceEstimateLimitsProcedure: {role: access.RoleViewer, scope: inChanges},

	controlv1connect.TokenServiceWhoAmIProcedure:      {role: access.RoleViewer, scope: always},
	controlv1connect.TokenServiceCreateTokenProcedure: {role: access.RoleAdmin},
	controlv1connect.TokenServiceRotateTokenProcedure: {role: access.RoleAdmin},
	controlv1connect.TokenServiceRevokeTokenProcedure: {role: access.RoleAdmin},
	controlv1connect.TokenServiceListTokensProcedure:  {role: access.RoleAdmin},
}

type (
	identityKey struct{}
	holderKey   struct{}
	byKey       struct{}
)

// WithHolder returns a context for calls within this process that are made as the holder of a token, by the token's
// hash. Requests from outside never have such a context.
func WithHolder(ctx context.Context, token access.TokenHash) context.Context {
	return context.WithValue(ctx, holderKey{}, token)
}

// WithIdentity returns a context for calls within this process that a part of the process makes without a token, for
// example the console's pulse.
func WithIdentity(ctx context.Context, identity access.Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, identity)
}

// authenticated requires a token for every call. The token's role must suffice, and its workspaces must include the
// workspaces that the request names. It stores the token's holder in the context. Without Config.RequireTokens it
// requires nothing.
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
	role := cmp.Or(rules[procedure].role, access.RoleAdmin)
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

// failureOf returns the reason why a call has no identity.
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

// holder returns the identity of a caller: from its context, or else from its certificate, or else from its token.
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

// operatorMessage is a request that has an actor and a reason.
type operatorMessage interface {
	GetActor() string
	GetReason() string
}

// byOf returns the author and the reason of a change. If tokens are required, the author is the subject of the
// certificate or the holder of the token, and the request's actor is ignored.
func byOf(ctx context.Context, msg operatorMessage) (controlplane.By, error) {
	by := controlplane.By{Actor: msg.GetActor(), Reason: msg.GetReason()}
	if identity, ok := ctx.Value(identityKey{}).(access.Identity); ok {
		by.Actor = identity.Name
	}
	return by, by.Validate()
}

// by returns the author and the reason of the change that a handler of an operatorMessage makes.
func by(ctx context.Context) controlplane.By { return ctx.Value(byKey{}).(controlplane.By) }
