package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type tokenCreate struct {
	Name string `arg:"" help:"Who will hold it: the actor in the audit log."`
	Role string `required:"" enum:"viewer,operator,admin" help:"viewer looks, operator changes, admin makes tokens."`
	by
}

// Run makes a token and prints it.
func (t tokenCreate) Run(c *call) error {
	actor, err := c.actor(t.Actor)
	if err != nil {
		return err
	}
	answer, err := c.tokens.CreateToken(c.ctx,
		connect.NewRequest(&controlv1.CreateTokenRequest{Actor: actor, Reason: t.Reason, Name: t.Name, Role: t.Role}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, answer.Msg.GetSecret())
		_, _ = fmt.Fprintf(c.stderr, "This is the only time that it is shown. Use it with WEIR_TOKEN or --token-file.\n")
	})
}

type tokenRevoke struct {
	Name string `arg:"" help:"The token."`
	by
}

// Run revokes a token.
func (t tokenRevoke) Run(c *call) error {
	actor, err := c.actor(t.Actor)
	if err != nil {
		return err
	}
	answer, err := c.tokens.RevokeToken(c.ctx,
		connect.NewRequest(&controlv1.RevokeTokenRequest{Actor: actor, Reason: t.Reason, Name: t.Name}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "token %s opens nothing any more\n", plain(t.Name))
	})
}

type tokenList struct {
	After string `placeholder:"NAME" help:"Begin behind this one: where the last page ended."`
}

// Run lists tokens.
func (l tokenList) Run(c *call) error {
	answer, err := c.tokens.ListTokens(c.ctx, connect.NewRequest(&controlv1.ListTokensRequest{After: l.After}))
	if err != nil {
		return err
	}
	return c.print(answer.Msg, func(w io.Writer) {
		if len(answer.Msg.GetTokens()) == 0 {
			head(w, "%s", none(l.After, "there is no token yet: see weirctl token create --help"))
			return
		}
		t := newTable(w)
		t.row("NAME", "ROLE", "CREATED", "BY", "REVOKED")
		last := ""
		for _, token := range answer.Msg.GetTokens() {
			last = token.GetName()
			revoked := "-"
			if at := token.GetRevokedAtMs(); at > 0 {
				revoked = moment(at)
			}
			t.row(token.GetName(), token.GetRole(), moment(token.GetCreatedAtMs()), token.GetCreatedBy(), revoked)
		}
		t.flush()
		writeMore(w, answer.Msg.GetHasMore(), last)
	})
}

// secret is the token to call with, if any. It has no flag: lists of processes show
// flags to everybody.
func secret(file string) (string, error) {
	if file == "" {
		return strings.TrimSpace(os.Getenv("WEIR_TOKEN")), nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
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
