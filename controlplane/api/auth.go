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

	controlv1connect.RolloutServiceRolloutStatusProcedure:  controlplane.RoleViewer,
	controlv1connect.RolloutServiceListRolloutsProcedure:   controlplane.RoleViewer,
	controlv1connect.RolloutServiceStartRolloutProcedure:   controlplane.RoleOperator,
	controlv1connect.RolloutServiceOperateRolloutProcedure: controlplane.RoleOperator,

	controlv1connect.SettingsServiceListOverridesProcedure:  controlplane.RoleViewer,
	controlv1connect.SettingsServiceListNamespacesProcedure: controlplane.RoleViewer,
	controlv1connect.SettingsServiceSetOverrideProcedure:    controlplane.RoleOperator,
	controlv1connect.SettingsServiceDeleteOverrideProcedure: controlplane.RoleOperator,
	controlv1connect.SettingsServiceSetNamespaceProcedure:   controlplane.RoleOperator,

	controlv1connect.TokenServiceCreateTokenProcedure: controlplane.RoleAdmin,
	controlv1connect.TokenServiceRevokeTokenProcedure: controlplane.RoleAdmin,
	controlv1connect.TokenServiceListTokensProcedure:  controlplane.RoleAdmin,
}

type identityKey struct{}

// authenticated asks every call for a token of a role that suffices, and remembers whose
// it is. Without Config.RequireTokens it asks for nothing.
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
			return next(context.WithValue(ctx, identityKey{}, identity), req)
		}
	}
}

func (s *service) identify(ctx context.Context, authorization, procedure string) (controlplane.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	scheme, secret, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "bearer") || secret == "" {
		return controlplane.Identity{}, connect.NewError(connect.CodeUnauthenticated, errors.New("this API asks for a token: Authorization: Bearer …"))
	}
	identity, err := s.Tokens.Authenticate(ctx, strings.TrimSpace(secret))
	if errors.Is(err, controlplane.ErrUnauthenticated) {
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
		return identity, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("token %s has the role %s; this takes the role %s", identity.Name, identity.Role, role))
	}
	return identity, nil
}

// operatorMessage is a request that says who and why.
type operatorMessage interface {
	GetActor() string
	GetReason() string
}

// byOf is who makes a change, and why. Where tokens are asked for, it is whoever holds
// the token, whatever the request says.
func byOf(ctx context.Context, msg operatorMessage) (controlplane.By, error) {
	by := controlplane.By{Actor: msg.GetActor(), Reason: msg.GetReason()}
	if identity, ok := ctx.Value(identityKey{}).(controlplane.Identity); ok {
		by.Actor = identity.Name
	}
	return by, by.Validate()
}
