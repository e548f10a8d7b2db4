package console

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/console/sessions"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
)

// signInForm is the data of the sign-in page.
type signInForm struct {
	Next      string
	Problem   string
	Plaintext bool // the token would be sent unencrypted
}

func (c signInPages) signInPage(w http.ResponseWriter, r *http.Request) {
	next := local(r.URL.Query().Get("next"))
	if _, err := c.viewer(r); err == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	c.showSignIn(w, r, http.StatusOK, signInForm{Next: next, Plaintext: !c.encrypted(r)})
}

// signIn begins a session for a caller with a valid token.
func (c signInPages) signIn(w http.ResponseWriter, r *http.Request) {
	form := signInForm{Next: local(r.PostFormValue("next")), Plaintext: !c.encrypted(r)}
	if form.Plaintext {
		c.showSignIn(w, r, http.StatusForbidden, form)
		return
	}
	secret := strings.TrimSpace(r.PostFormValue("token"))
	if secret == "" {
		form.Problem = "Paste your token: the field was empty."
		c.showSignIn(w, r, http.StatusBadRequest, form)
		return
	}
	hash, address := access.HashToken(secret), c.address(r)
	keys := []string{"address " + address, sessions.TokenKey(hash)}
	if wait := c.backoff.Try(keys...); wait > 0 {
		c.slowDown(w, r, form, wait)
		return
	}
	who, err := c.backend.whoAmI(r.Context(), secret)
	if err == nil || !unauthenticated(err) {
		c.backoff.Passed(keys...)
	}
	if err != nil {
		form.Problem = apiclient.Words(err)
		c.showSignIn(w, r, status(err), form)
		return
	}
	if old, ok := c.sessions.Find(c.cookieValue(r)); ok {
		c.sessions.End(old.Key)
	}
	http.SetCookie(w, c.cookie(r, c.sessions.Begin(hash)))
	c.Log.InfoContext(r.Context(), "signed in to the console", "name", who.GetName(), "role", who.GetRole(),
		"address", address)
	http.Redirect(w, r, form.Next, http.StatusSeeOther)
}

// slowDown rejects an attempt that comes too soon after failed attempts.
func (c signInPages) slowDown(w http.ResponseWriter, r *http.Request, form signInForm, wait time.Duration) {
	seconds := max(1, int(math.Ceil(wait.Seconds())))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	form.Problem = fmt.Sprintf("Too many attempts have failed from your address, or with this token: try again in %d s.",
		seconds)
	c.showSignIn(w, r, http.StatusTooManyRequests, form)
}

func (c signInPages) signOut(w http.ResponseWriter, r *http.Request, v *viewer) {
	c.sessions.End(v.session)
	http.SetCookie(w, c.cookie(r, ""))
	http.Redirect(w, r, "/console/sign-in", http.StatusSeeOther)
}

func (c signInPages) showSignIn(w http.ResponseWriter, r *http.Request, code int, form signInForm) {
	c.render(w, r, &viewer{}, code, "sign-in", "Sign in", form)
}

// local returns a path of this console to continue with, or the first page for any other address.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(path.Clean(u.Path)+"/", "/console/") ||
		strings.Contains(next, "\\") || strings.HasPrefix(u.Path, "/console/sign-") {
		return "/console/"
	}
	return u.RequestURI()
}
