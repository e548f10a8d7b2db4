package console

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/workspaces"
)

const (
	tokensShown = 50  // per page: each token has two forms
	onceMax     = 256 // forms that are remembered
)

// tokensView is a page of the tokens, with the form that creates a token.
type tokensView struct {
	Tokens []tokenView
	// the page begins after the first name, the next page after the second; empty: there is no such page
	After, Next string
	Form        tokenForm
	Made        *madeToken // nil: no token was created. Otherwise the response to the form shows the secret once.
	Once        string     // identifies the forms of this page
}

// tokenView is a token, with its state and whether it can still be used.
type tokenView struct {
	*controlv1.Token
	InForce bool
	State   string
}

// tokenForm is the form of a new token, as it was filled in.
type tokenForm struct {
	Name       string
	Role       access.Role
	Workspaces string
	ExpiresIn  string
}

// madeToken is a new secret.
type madeToken struct {
	Name, Secret string
	Old          time.Duration // how long the previous secret stays valid
	Rotated      bool
}

// Roles returns the roles that a token can have, the least first.
func (*tokensView) Roles() []access.Role {
	return []access.Role{access.RoleViewer, access.RoleOperator, access.RoleAdmin}
}

func (c tokenPages) tokensPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	c.showTokens(w, r, v, http.StatusOK, "", &tokensView{After: r.URL.Query().Get("after")})
}

func (c tokenPages) showTokens(w http.ResponseWriter, r *http.Request, v *viewer, code int, problem string,
	page *tokensView) {
	found, err := apiclient.Ask(v.ctx, c.backend.Tokens.ListTokens, &controlv1.ListTokensRequest{After: page.After})
	switch {
	case err == nil:
		page.fill(found, time.Now())
	case page.Made == nil:
		c.broken(w, r, v, err)
		return
	default: // the secret is shown even if the list cannot be read, because it is shown only once
		problem = "The tokens cannot be listed: " + apiclient.Words(err)
	}
	page.Once = rand.Text()
	c.renderWith(w, r, v, code, "tokens", "Tokens", problem, page)
}

func (p *tokensView) fill(found *controlv1.ListTokensResponse, now time.Time) {
	list, next := firstOf(found.GetTokens(), tokensShown, found.GetHasMore(), (*controlv1.Token).GetName)
	p.Next = next
	for _, t := range list {
		p.Tokens = append(p.Tokens, describeToken(t, now))
	}
}

func describeToken(t *controlv1.Token, now time.Time) tokenView {
	v := tokenView{Token: t}
	ends, old := t.GetExpiresAtMs(), t.GetOldUntilMs()
	switch {
	case t.GetRevokedAtMs() > 0:
		v.State = "revoked " + stamp(t.GetRevokedAtMs())
		return v
	case ends > 0 && ends <= now.UnixMilli():
		v.State = "expired " + stamp(ends)
		return v
	case ends > 0:
		v.State = "expires " + stamp(ends)
	default:
		v.State = "does not expire"
	}
	v.InForce = true
	if old > now.UnixMilli() {
		if ends > 0 {
			old = min(old, ends)
		}
		v.State += "; the previous secret is valid until " + stamp(old)
	}
	return v
}

// changeToken creates, rotates or revokes a token. Only the response to the form has the secret. Reloading the response
// does not create another secret, because each form is accepted once.
func (c tokenPages) changeToken(w http.ResponseWriter, r *http.Request, v *viewer) {
	f := r.PostForm
	page := &tokensView{After: f.Get("after")}
	by := func() (actor, reason string) { return c.by(w, r, v) }
	switch f.Get("do") {
	case "create":
		page.Form = tokenForm{Name: strings.TrimSpace(f.Get("name")), Role: access.Role(f.Get("role")),
			Workspaces: strings.TrimSpace(f.Get("workspaces")), ExpiresIn: strings.TrimSpace(f.Get("expires_in"))}
		expires, err := optionalSpan("ends after", page.Form.ExpiresIn)
		var valid *workspaces.Set
		if err == nil {
			valid, err = optionalWorkspaces(page.Form.Workspaces)
		}
		if err != nil {
			c.showTokens(w, r, v, http.StatusBadRequest, err.Error(), page)
			return
		}
		msg := &controlv1.CreateTokenRequest{Name: page.Form.Name, Role: string(page.Form.Role),
			Workspaces: valid.Names(), ExpiresInMs: expires.Milliseconds()}
		msg.Actor, msg.Reason = by()
		c.madeOnce(w, r, v, page, func(ctx context.Context) (*madeToken, error) {
			made, err := apiclient.Ask(ctx, c.backend.Tokens.CreateToken, msg)
			return &madeToken{Name: msg.GetName(), Secret: made.GetSecret()}, err
		})
	case "rotate":
		overlap, err := optionalSpan("the previous secret stays valid for", strings.TrimSpace(f.Get("overlap")))
		if err != nil {
			c.showTokens(w, r, v, http.StatusBadRequest, err.Error(), page)
			return
		}
		overlapMs := overlap.Milliseconds()
		msg := &controlv1.RotateTokenRequest{Name: f.Get("name"), OverlapMs: &overlapMs}
		msg.Actor, msg.Reason = by()
		c.madeOnce(w, r, v, page, func(ctx context.Context) (*madeToken, error) {
			made, err := apiclient.Ask(ctx, c.backend.Tokens.RotateToken, msg)
			return &madeToken{Name: msg.GetName(), Secret: made.GetSecret(), Old: overlap, Rotated: true}, err
		})
	case "revoke":
		msg := &controlv1.RevokeTokenRequest{Name: f.Get("name")}
		msg.Actor, msg.Reason = by()
		if _, err := apiclient.Ask(v.ctx, c.backend.Tokens.RevokeToken, msg); err != nil {
			c.showTokens(w, r, v, status(err), apiclient.Words(err), page)
			return
		}
		done(w, r, "/console/tokens", "token.revoke", url.Values{"after": {page.After}})
	default:
		c.showTokens(w, r, v, http.StatusBadRequest, "A token has no such action.", page)
	}
}

// madeOnce creates and shows a secret if the form is sent for the first time.
func (c tokenPages) madeOnce(w http.ResponseWriter, r *http.Request, v *viewer, page *tokensView,
	create func(context.Context) (*madeToken, error)) {
	once := r.PostForm.Get("once")
	if !c.once.claim(once) {
		c.showTokens(w, r, v, http.StatusConflict,
			"This form was already sent. The secret was shown then, and is not shown again.", page)
		return
	}
	made, err := create(v.ctx)
	if err != nil {
		c.once.release(once)
		c.showTokens(w, r, v, status(err), apiclient.Words(err), page)
		return
	}
	page.Form, page.Made = tokenForm{}, made
	c.showTokens(w, r, v, http.StatusOK, "", page)
}

// optionalSpan reads a duration. An empty text is 0. Errors begin with the field's label.
func optionalSpan(label, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	ms, err := typedMs(text)
	if err != nil {
		return 0, fmt.Errorf("%s %q, want something like 90m, 24h or 90d", label, text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// optionalWorkspaces parses names separated by commas. Without names it returns the set of all
// workspaces.
func optionalWorkspaces(text string) (*workspaces.Set, error) {
	if text == "" {
		return nil, nil
	}
	names := strings.Split(text, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	valid, err := workspaces.Parse(strings.Join(names, ","))
	if err != nil {
		return nil, fmt.Errorf("workspaces: %w", err)
	}
	return valid, nil
}

// once has the last onceMax forms that were accepted. Its methods are safe for concurrent use.
type once struct {
	mu    sync.Mutex
	taken []string // oldest first
}

// claim accepts a form, unless it was accepted before or is invalid.
func (o *once) claim(form string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if form == "" || len(form) > 128 || slices.Contains(o.taken, form) {
		return false
	}
	if o.taken = append(o.taken, form); len(o.taken) > onceMax {
		o.taken = slices.Delete(o.taken, 0, 1)
	}
	return true
}

// release makes a form acceptable again after it has failed.
func (o *once) release(form string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = slices.DeleteFunc(o.taken, func(taken string) bool { return taken == form })
}
