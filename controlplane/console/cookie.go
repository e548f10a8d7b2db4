package console

import (
	"net/http"

	"github.com/weirhq/weir/controlplane/console/sessions"
)

const (
	cookieSecure   = "__Host-weir" // browsers accept the name only over TLS and for this host
	cookieLoopback = "weir_session"
)

// cookie returns the cookie for a session's ID. An empty ID removes the cookie from the browser.
func (c *Console) cookie(r *http.Request, id string) *http.Cookie {
	made := &http.Cookie{Name: c.cookieName(r), Value: id, Path: "/", HttpOnly: true, Secure: c.overTLS(r),
		SameSite: http.SameSiteStrictMode, MaxAge: int(sessions.Lifetime.Seconds())}
	if id == "" {
		made.MaxAge = -1
	}
	return made
}

// cookieName returns the name that browsers accept only over TLS if the request uses TLS.
func (c *Console) cookieName(r *http.Request) string {
	if c.overTLS(r) {
		return cookieSecure
	}
	return cookieLoopback
}

func (c *Console) cookieValue(r *http.Request) string {
	found, err := r.Cookie(c.cookieName(r))
	if err != nil {
		return ""
	}
	return found.Value
}
