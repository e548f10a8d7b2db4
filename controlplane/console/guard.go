package console

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/api"
)

// policy lets pages load files of this console and send requests to it, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure sets the headers of every response.
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

// viewer is the person who requests a page. API calls with its context are made as that person.
type viewer struct {
	Name    string
	Role    access.Role
	Open    bool   // the API requires no tokens
	Forgery string // the token against forgery that the page's forms carry

	Workspaces []string // of the viewer's token; empty: all

	session string
	tls     *tls.ConnectionState // of the viewer's connection; nil: not encrypted
	ctx     context.Context
}

// May reports whether the page should show a button for the role.
func (v *viewer) May(role string) bool { return v.Role.May(access.Role(role)) }

// page handles a request of a viewer who may see it.
type page func(w http.ResponseWriter, r *http.Request, v *viewer)

// signedIn finds the viewer of a request. It asks the API at every request, because the token can have been revoked.
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

// viewer returns the person who makes a request: the holder of its session, or anybody if the API requires no tokens.
func (c *Console) viewer(r *http.Request) (*viewer, error) {
	ctx := r.Context()
	v := &viewer{Forgery: c.forgery, tls: r.TLS}
	if s, ok := c.sessions.Find(c.cookieValue(r)); ok {
		ctx = api.WithHolder(ctx, s.Token)
		v.session, v.Forgery = s.Key, s.Forgery
	}
	who, err := c.backend.whoAmI(ctx, "")
	if err != nil {
		if v.session != "" && unauthenticated(err) {
			c.sessions.End(v.session)
		}
		return nil, err
	}
	v.Name, v.Role, v.Open, v.ctx = who.GetName(), access.Role(who.GetRole()), !who.GetTokensRequired(), ctx
	v.Workspaces = who.GetWorkspaces()
	return v, nil
}

// ofFleet serves pages about the whole fleet. It rejects viewers whose token has workspaces.
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

// turnAway redirects people to the sign-in page, which leads back to the page that they requested. Programs get a
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

// ours rejects a POST that was not made by a page of this console. Browsers send Origin with every POST.
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

// meant rejects a POST without the token that forms of this console carry.
func (c *Console) meant(next page) page {
	return func(w http.ResponseWriter, r *http.Request, v *viewer) {
		if err := readForm(r); err != nil {
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

// readForm reads a form into memory, which ServeHTTP bounds. Only a form with an upload is not URL-encoded.
func readForm(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "multipart/form-data" {
		return r.ParseMultipartForm(formBytesMax)
	}
	return r.ParseForm()
}

func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
