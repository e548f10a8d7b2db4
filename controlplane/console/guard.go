package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/api"
)

// policy lets pages load our own files, talk to us, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure sets what every answer carries.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// viewer is who looks at a page, with a context in which the API is called as them.
type viewer struct {
	Name    string
	Role    access.Role
	Open    bool   // the API asks for no tokens
	Forgery string // what the forms of the page carry

	Workspaces []string // of the viewer's token; empty: all

	session string
	tls     *tls.ConnectionState // of the viewer's connection; nil: not encrypted
	ctx     context.Context
}

// May tells whether a button is worth showing.
func (v *viewer) May(role string) bool { return v.Role.May(access.Role(role)) }

// page handles a request of somebody who may look.
type page func(w http.ResponseWriter, r *http.Request, v *viewer)

// signedIn finds out who is there, by asking the API each time: a token may have been
// revoked since.
func (c *Console) signedIn(next page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := c.viewer(r)
		switch {
		case err != nil && unauthenticated(err):
			c.turnAway(w, r)
		case err != nil:
			c.broken(w, r, &viewer{ctx: r.Context()}, err)
		default:
			next(w, r, v)
		}
	}
}

// viewer is who makes a request: the holder of its session, or anybody where the API asks
// for no tokens.
func (c *Console) viewer(r *http.Request) (*viewer, error) {
	ctx := r.Context()
	v := &viewer{Forgery: c.forgery, tls: r.TLS}
	if s, ok := c.sessions.find(c.cookieValue(r)); ok {
		ctx = api.WithHolder(ctx, s.token)
		v.session, v.Forgery = s.key, s.forgery
	}
	who, err := c.backend.whoAmI(ctx, "")
	if err != nil {
		if v.session != "" && unauthenticated(err) {
			c.sessions.end(v.session)
		}
		return nil, err
	}
	v.Name, v.Role, v.Open, v.ctx = who.GetName(), access.Role(who.GetRole()), !who.GetTokensRequired(), ctx
	v.Workspaces = who.GetWorkspaces()
	return v, nil
}

// ofFleet serves pages about the whole fleet, and refuses viewers whose token has workspaces.
func (c *Console) ofFleet(next page) page {
	return func(w http.ResponseWriter, r *http.Request, v *viewer) {
		switch {
		case len(v.Workspaces) == 0:
			next(w, r, v)
		case r.URL.Path == "/console/":
			http.Redirect(w, r, "/console/limits", http.StatusSeeOther)
		default:
			c.render(w, r, v, http.StatusForbidden, "broken", "Not available",
				"Your token is limited to some workspaces, and this page shows the whole fleet.")
		}
	}
}

// turnAway sends people to the sign-in, and back where they wanted to be; programs get a
// status.
func (c *Console) turnAway(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path == "/console/events" {
		http.Error(w, "Not signed in.", http.StatusUnauthorized)
		return
	}
	to := "/console/sign-in"
	if r.URL.Path != "/console/" {
		to += "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// ours refuses a POST that no page of ours has made. Browsers send Origin with every one.
func (c *Console) ours(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		origin, err := url.Parse(r.Header.Get("Origin"))
		if err != nil || origin.Host == "" || !strings.EqualFold(origin.Host, r.Host) {
			http.Error(w, "The Origin of this request is not this console. A proxy in front of the console must pass on "+
				"the Host header.", http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// meant refuses a POST without the token that our forms carry.
func (c *Console) meant(next page) page {
	return func(w http.ResponseWriter, r *http.Request, v *viewer) {
		if err := r.ParseForm(); err != nil {
			http.Error(w, "The form could not be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		if subtle.ConstantTimeCompare([]byte(r.PostForm.Get("forgery")), []byte(v.Forgery)) != 1 {
			http.Error(w, "This form is out of date: go back, load the page again, and send it once more.", http.StatusForbidden)
			return
		}
		next(w, r, v)
	}
}

func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// random is 130 bits of it, as text.
func random() string { return rand.Text() }
