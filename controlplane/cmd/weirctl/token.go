package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type tokenCreate struct {
	Name      string        `arg:"" help:"The name of its holder, the actor in the audit log."`
	Role      string        `required:"" enum:"viewer,operator,admin" help:"A viewer looks, an operator changes, an admin makes tokens (${enum})."`
	Workspace []string      `placeholder:"NAME" sep:"none" help:"Limit the token to this workspace; may be repeated up to 32 times. The role must be viewer or operator, and calls about the fleet are refused. Default: all workspaces."`
	ExpiresIn time.Duration `placeholder:"DURATION" help:"When it expires, from now (1m to 87840h). Default: never."`
	by
}

func (t tokenCreate) Run(c *call) error {
	return show(c, c.Tokens.CreateToken, &controlv1.CreateTokenRequest{Actor: t.Actor, Reason: t.Reason, Name: t.Name,
		Role: t.Role, Workspaces: t.Workspace, ExpiresInMs: t.ExpiresIn.Milliseconds(),
	}, func(w io.Writer, answer *controlv1.CreateTokenResponse) {
		_, _ = fmt.Fprintln(w, answer.GetSecret())
		_, _ = fmt.Fprintf(c.stderr, "It is not shown again. Use it with WEIR_TOKEN or --token-file.\n")
	})
}

type tokenRotate struct {
	Name      string        `arg:"" help:"The token."`
	Overlap   time.Duration `default:"24h" help:"How long the old secret stays valid (0s to 720h, default ${default})."`
	ExpiresIn time.Duration `placeholder:"DURATION" help:"When the token expires, from now (1m to 87840h). Default: as before."`
	by
}

func (r tokenRotate) Run(c *call) error {
	return show(c, c.Tokens.RotateToken, &controlv1.RotateTokenRequest{Actor: r.Actor, Reason: r.Reason, Name: r.Name,
		OverlapMs: new(r.Overlap.Milliseconds()), ExpiresInMs: r.ExpiresIn.Milliseconds(),
	}, func(w io.Writer, answer *controlv1.RotateTokenResponse) {
		_, _ = fmt.Fprintln(w, answer.GetSecret())
		_, _ = fmt.Fprintf(c.stderr, "It is not shown again. The old secret stays valid for %s.\n",
			format.Span(r.Overlap.Milliseconds()))
	})
}

type tokenRevoke struct {
	Name string `arg:"" help:"The token."`
	by
}

func (t tokenRevoke) Run(c *call) error {
	ask := &controlv1.RevokeTokenRequest{Actor: t.Actor, Reason: t.Reason, Name: t.Name}
	return show(c, c.Tokens.RevokeToken, ask, func(w io.Writer, _ *controlv1.RevokeTokenResponse) {
		_, _ = fmt.Fprintf(w, "token %s is no longer valid\n", format.Plain(t.Name))
	})
}

type tokenList struct {
	After string `placeholder:"NAME" help:"Begin after this one, the last of the previous page."`
}

func (l tokenList) Run(c *call) error {
	ask := &controlv1.ListTokensRequest{After: l.After}
	return show(c, c.Tokens.ListTokens, ask, func(w io.Writer, answer *controlv1.ListTokensResponse) {
		if len(answer.GetTokens()) == 0 {
			format.Head(w, "%s", none(l.After, "there is no token yet: see weirctl token create --help"))
			return
		}
		t := format.NewTable(w)
		t.Row("NAME", "ROLE", "WORKSPACES", "CREATED", "BY", "USED", "STATE")
		last := ""
		for _, token := range answer.GetTokens() {
			last = token.GetName()
			used := "never"
			if at := token.GetUsedAtMs(); at > 0 {
				used = c.ago(at)
			}
			valid := cmp.Or(strings.Join(token.GetWorkspaces(), ", "), "all")
			t.Row(token.GetName(), token.GetRole(), valid, format.Moment(token.GetCreatedAtMs()), token.GetCreatedBy(), used,
				c.tokenState(token))
		}
		t.Flush()
		writeMore(w, answer.GetHasMore(), last)
	})
}

// tokenState describes whether a token is valid, and until when.
func (c *call) tokenState(t *controlv1.Token) string {
	nowMs := c.now().UnixMilli()
	switch ends := t.GetExpiresAtMs(); {
	case t.GetRevokedAtMs() > 0:
		return "revoked " + format.Moment(t.GetRevokedAtMs())
	case ends > 0 && ends <= nowMs:
		return "expired " + format.Moment(ends)
	case t.GetOldUntilMs() > nowMs && ends > 0:
		return "expires " + c.in(ends) + "; the secret before, " + c.in(min(ends, t.GetOldUntilMs()))
	case t.GetOldUntilMs() > nowMs:
		return "in force; the old secret ends " + c.in(t.GetOldUntilMs())
	case ends > 0:
		return "expires " + c.in(ends)
	}
	return "in force"
}

// bearer adds a token to every request.
type bearer struct {
	http.RoundTripper
	secret string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.secret != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+b.secret)
	}
	return b.RoundTripper.RoundTrip(req)
}
