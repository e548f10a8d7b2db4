package api

import (
	"context"
	"fmt"
	"math"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// Tokens creates tokens and finds their holders. Errors wrap controlplane.ErrInvalid, ErrConflict, ErrNotFound,
// ErrUnauthenticated, ErrUnavailable or the context's error. Implementations must be safe for concurrent use.
type Tokens interface {
	Authenticate(ctx context.Context, secret string) (access.Identity, error)
	Holder(ctx context.Context, hash access.TokenHash) (access.Identity, error)
	Create(ctx context.Context, name string, role access.Role, expiresIn time.Duration, by controlplane.By,
		workspaces ...string) (secret string, err error)
	Rotate(ctx context.Context, name string, overlap, expiresIn time.Duration,
		by controlplane.By) (secret string, err error)
	Revoke(ctx context.Context, name string, by controlplane.By) error
	List(ctx context.Context, after string) (tokens []access.Token, more bool, err error)
}

// tokenService implements the RPCs about tokens.
type tokenService struct{ *service }

var _ controlv1connect.TokenServiceHandler = tokenService{}

func (s tokenService) CreateToken(ctx context.Context,
	req *connect.Request[controlv1.CreateTokenRequest]) (*connect.Response[controlv1.CreateTokenResponse], error) {
	if _, taken := s.Subjects[req.Msg.GetName()]; taken { // audit entries of both would be indistinguishable
		return nil, fmt.Errorf("%w: token name %q is the subject of a certificate with a role", controlplane.ErrInvalid,
			req.Msg.GetName())
	}
	secret, err := s.Tokens.Create(ctx, req.Msg.GetName(), access.Role(req.Msg.GetRole()),
		msOf(req.Msg.GetExpiresInMs()), by(ctx), req.Msg.GetWorkspaces()...)
	return answered(&controlv1.CreateTokenResponse{Secret: secret}, err)
}

func (s tokenService) RotateToken(ctx context.Context,
	req *connect.Request[controlv1.RotateTokenRequest]) (*connect.Response[controlv1.RotateTokenResponse], error) {
	overlap := access.TokenOverlapDefault
	if req.Msg.OverlapMs != nil {
		overlap = msOf(req.Msg.GetOverlapMs())
	}
	secret, err := s.Tokens.Rotate(ctx, req.Msg.GetName(), overlap, msOf(req.Msg.GetExpiresInMs()), by(ctx))
	return answered(&controlv1.RotateTokenResponse{Secret: secret}, err)
}

// msOf converts ms to a Duration. A value that no Duration can hold becomes the longest Duration, which is above every
// bound.
func msOf(ms int64) time.Duration {
	most := int64(math.MaxInt64 / time.Millisecond)
	return time.Duration(max(-most, min(most, ms))) * time.Millisecond
}

func (s tokenService) RevokeToken(ctx context.Context,
	req *connect.Request[controlv1.RevokeTokenRequest]) (*connect.Response[controlv1.RevokeTokenResponse], error) {
	return answered(&controlv1.RevokeTokenResponse{}, s.Tokens.Revoke(ctx, req.Msg.GetName(), by(ctx)))
}

func (s tokenService) ListTokens(ctx context.Context,
	req *connect.Request[controlv1.ListTokensRequest]) (*connect.Response[controlv1.ListTokensResponse], error) {
	tokens, more, err := s.Tokens.List(ctx, req.Msg.GetAfter())
	return answered(&controlv1.ListTokensResponse{HasMore: more, Tokens: each(tokens, tokenAnswer)}, err)
}

func tokenAnswer(t access.Token) *controlv1.Token {
	return &controlv1.Token{
		Name: valid(t.Name), Role: string(t.Role), CreatedBy: t.CreatedBy, CreatedAtMs: unixMs(t.CreatedAt),
		RevokedAtMs: unixMs(t.RevokedAt), ExpiresAtMs: unixMs(t.ExpiresAt), UsedAtMs: unixMs(t.UsedAt),
		OldUntilMs: unixMs(t.OldUntil), Workspaces: validAll(t.Workspaces.Names()),
	}
}

// WhoAmI returns the caller's identity. Without RequireTokens every caller can do everything.
func (s tokenService) WhoAmI(ctx context.Context,
	_ *connect.Request[controlv1.WhoAmIRequest]) (*connect.Response[controlv1.WhoAmIResponse], error) {
	answer := &controlv1.WhoAmIResponse{Role: string(access.RoleAdmin), TokensRequired: s.RequireTokens}
	if identity, ok := ctx.Value(identityKey{}).(access.Identity); ok {
		answer.Name, answer.Role = identity.Name, string(identity.Role)
		answer.Workspaces = validAll(identity.Workspaces.Names())
	}
	return connect.NewResponse(answer), nil
}
