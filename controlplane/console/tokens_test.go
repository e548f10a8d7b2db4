package console

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
)

var onceOf = regexp.MustCompile(`name="once" value="([^"]+)"`)

// tokenForm returns the form of the token page, filled in.
func (b *browser) tokenForm(values ...string) url.Values {
	b.w.t.Helper()
	found := onceOf.FindStringSubmatch(b.get("/console/tokens").body)
	if found == nil {
		b.w.t.Fatal("the page has no form")
	}
	form := url.Values{"once": {found[1]}, "reason": {"deploy"}}
	for i := 0; i+1 < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	return form
}

// Tokens are listed with role, creator, expiry and last use. Invalid tokens have no actions.
func TestTokensAreListed(t *testing.T) {
	w := start(t, false)
	b := w.as("admin")
	if a := b.get("/console/tokens"); a.status != http.StatusOK || !strings.Contains(a.body, "There is no token yet") || !strings.Contains(a.body, `aria-current="page">Tokens</a>`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	made, used := time.UnixMilli(1_600_000_000_000), time.UnixMilli(1_650_000_000_000)
	later := time.Now().Add(time.Hour)
	w.set(func() {
		w.tokens = []access.Token{
			{Name: "a-ci", Role: access.RoleOperator, CreatedBy: "ann", CreatedAt: made, UsedAt: used},
			{Name: "b-old", Role: access.RoleViewer, CreatedBy: "<img src=x>", CreatedAt: made, ExpiresAt: used},
			{Name: "c-gone", Role: access.RoleAdmin, CreatedBy: "ann", CreatedAt: made, RevokedAt: used},
			{Name: "d-new", Role: access.RoleAdmin, CreatedBy: "ann", CreatedAt: made, ExpiresAt: later, OldUntil: later.Add(time.Hour)},
		}
	})
	a := b.get("/console/tokens")
	for _, says := range []string{
		`<code>a-ci</code></th><td data-label="Role">operator</td><td data-label="Workspaces"><span class="faint">all</span></td>`, stamp(made.UnixMilli()) + "</time> <span class=\"faint\">by ann</span>", stamp(used.UnixMilli()) + `</time></td><td data-label="State">does not expire</td>`,
		`<span class="faint">never</span></td><td data-label="State"><b class="badtext">expired ` + stamp(used.UnixMilli()), "revoked " + stamp(used.UnixMilli()),
		"expires " + stamp(later.UnixMilli()) + "; the previous secret is valid until " + stamp(later.UnixMilli()), "by &lt;img src=x&gt;",
	} {
		if !strings.Contains(a.body, says) {
			t.Errorf("it does not say %s\n%s", says, a.body)
		}
	}
	if n := strings.Count(a.body, `value="rotate"`); n != 2 {
		t.Errorf("%d tokens can be rotated", n)
	}
	w.set(func() {
		w.tokens = nil
		for i := range 2*tokensShown + 1 {
			w.tokens = append(w.tokens, access.Token{Name: fmt.Sprintf("t%03d", i), Role: access.RoleViewer, CreatedAt: made})
		}
	})
	next := "/console/tokens"
	for page, want := range []int{tokensShown, tokensShown, 1} {
		a := b.get(next)
		if n := strings.Count(a.body, `value="rotate"`); n != want {
			t.Errorf("page %d has %d tokens", page, n)
		}
		next = fmt.Sprintf("/console/tokens?after=t%03d", (page+1)*tokensShown-1)
		if more := strings.Contains(a.body, `href="`+next+`" rel="next"`); more != (page < 2) {
			t.Errorf("page %d has a next one: %t", page, more)
		}
	}
	w.set(func() { w.down = fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable) })
	if a := b.get("/console/tokens"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "MySQL does not answer") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A secret is in the answer to the form that makes it, which no browser keeps, and nowhere else; a form is taken once.
func TestATokensSecretIsShownOnce(t *testing.T) {
	w := start(t, false)
	b := w.as("admin")
	w.set(func() { w.tokens = []access.Token{{Name: "ci", Role: access.RoleViewer}} })
	for want, form := range map[string]url.Values{
		"create bot operator 1h30m0s": b.tokenForm("do", "create", "name", " bot ", "role", "operator", "expires_in", "90m"),
		"create ever viewer 0s":       b.tokenForm("do", "create", "name", "ever", "role", "viewer"),
		"rotate ci 8h0m0s 0s":         b.tokenForm("do", "rotate", "name", "ci", "overlap", "8h"),
		"rotate ci 0s 0s":             b.tokenForm("do", "rotate", "name", "ci", "overlap", ""),
	} {
		a := b.send("/console/tokens", "/console/tokens", form)
		secret := fmt.Sprint("weir_s3cret-", w.made)
		if a.status != http.StatusOK || w.asked != want || !strings.Contains(a.body, `<code id="secret">`+secret+`</code>`) || w.by != (controlplane.By{Actor: "bot-admin", Reason: "deploy"}) {
			t.Fatalf("%s: %d, %q by %+v\n%s", want, a.status, w.asked, w.by, a.body)
		}
		if a.header.Get("Cache-Control") != "no-store" || a.header.Get("Content-Security-Policy") != policy || a.header.Get("Location") != "" {
			t.Errorf("%v", a.header)
		}
		if live := a.body[strings.Index(a.body, `data-live="tokens"`):]; strings.Contains(live, secret) {
			t.Error("a part that is fetched anew has the secret")
		}
		made := w.made
		if again := b.send("/console/tokens", "/console/tokens", form); again.status != http.StatusConflict || strings.Contains(again.body, "weir_s3cret") || w.made != made {
			t.Errorf("%s again: %d, %d secrets\n%s", want, again.status, w.made, again.body)
		}
		if shown := b.get("/console/tokens").body; strings.Contains(shown, "weir_s3cret") {
			t.Error("the page shows it again")
		}
	}
	if strings.Contains(w.log.String(), "s3cret") {
		t.Error("the log has it")
	}
	// The secret is shown even if the list cannot be read, because it cannot be requested again.
	form := b.tokenForm("do", "create", "name", "late", "role", "viewer")
	form.Set("forgery", b.forgery("/console/tokens"))
	w.set(func() { w.listDown = fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable) })
	if a := b.post("/console/tokens", form); a.status != http.StatusOK || !strings.Contains(a.body, fmt.Sprint("weir_s3cret-", w.made)) || !strings.Contains(a.body, "The tokens cannot be listed: ") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A rejected form creates nothing, shows the reason, and keeps the values that were entered. It can be sent again.
func TestTokensThatAreRefused(t *testing.T) {
	w := start(t, false)
	b := w.as("admin")
	w.set(func() { w.tokens = []access.Token{{Name: "ci"}} })
	for says, form := range map[string]url.Values{
		"ends after &#34;soon&#34;, want something like 90m":                   b.tokenForm("do", "create", "name", "typed", "role", "viewer", "expires_in", "soon"),
		"there is a token ci already":                                          b.tokenForm("do", "create", "name", "ci", "role", "viewer"),
		"reason is empty":                                                      b.tokenForm("do", "create", "name", "typed", "role", "viewer", "reason", " "),
		"ends after &#34;&#43;90m&#34;, want something like 90m":               b.tokenForm("do", "create", "name", "typed", "role", "viewer", "expires_in", "+90m"),
		"the previous secret stays valid for &#34;x&#34;, want something like": b.tokenForm("do", "rotate", "name", "ci", "overlap", "x"),
		"A token has no such action.":                                          b.tokenForm("do", "steal", "name", "ci"),
		"This form was already sent":                                           b.tokenForm("do", "create", "name", "typed", "once", ""),
	} {
		a := b.send("/console/tokens", "/console/tokens", form)
		if a.status < 400 || !strings.Contains(a.body, says) || w.made != 0 {
			t.Errorf("%d, %d made, it does not say %s\n%s", a.status, w.made, says, a.body)
		}
		if name := form.Get("name"); form.Get("do") == "create" && !strings.Contains(a.body, `name="name" value="`+name+`"`) {
			t.Errorf("%s: %q is lost", says, name)
		}
	}
	form := b.tokenForm("do", "create", "name", "bot", "role", "viewer")
	form.Set("forgery", b.forgery("/console/tokens"))
	w.set(func() { w.down = fmt.Errorf("%w: MySQL does not answer", controlplane.ErrUnavailable) })
	if a := b.post("/console/tokens", form); a.status != http.StatusServiceUnavailable {
		t.Errorf("%d", a.status)
	}
	w.set(func() { w.down = nil })
	if a := b.send("/console/tokens", "/console/tokens", form); a.status != http.StatusOK || w.made != 1 {
		t.Errorf("again, with MySQL back: %d %s", a.status, a.body)
	}
	if a := b.send("/console/tokens", "/console/tokens", b.tokenForm("do", "revoke", "name", "bot")); a.status != http.StatusSeeOther || w.asked != "revoke bot" || !strings.Contains(b.get(a.header.Get("Location")).body, "The token is revoked.") {
		t.Errorf("%d %s", a.status, w.asked)
	}
}

// Tokens are for admins: others have no link, no page, no stream of changes, and no change.
func TestTokensAreForAdmins(t *testing.T) {
	w := start(t, false)
	w.set(func() { w.tokens = []access.Token{{Name: "ci-deploys"}} })
	for _, role := range []string{"viewer", "operator"} {
		b := w.as(role)
		if a := b.get("/console/"); strings.Contains(a.body, "/console/tokens") {
			t.Errorf("a link for a %s", role)
		}
		if a := b.get("/console/tokens"); a.status != http.StatusForbidden || strings.Contains(a.body, "ci-deploys") || !strings.Contains(a.body, "this requires the role admin") {
			t.Errorf("%s: %d %s", role, a.status, a.body)
		}
		for _, do := range []string{"create", "rotate", "revoke"} {
			form := url.Values{"do": {do}, "name": {"ci-deploys"}, "role": {"admin"}, "reason": {"x"}, "once": {"1" + role + do}}
			form.Set("forgery", w.sessionOf(b))
			if a := b.post("/console/tokens", form); a.status != http.StatusForbidden || w.made != 0 || strings.Contains(a.body, "ci-deploys") {
				t.Errorf("%s, %s: %d %s", role, do, a.status, a.body)
			}
		}
	}
	l := w.as("admin").listen("topic=tokens")
	if event, _, _ := l.next(); event != "watching" {
		t.Errorf("it begins with %q", event)
	}
	w.set(func() { w.tokens[0].UsedAt = time.Now() })
	if event, _, _ := l.next(); event != "changed" {
		t.Errorf("a token was used: %q", event)
	}
}

// sessionOf returns the token against forgery of a browser's session, of the sign-out that each page has.
func (w *world) sessionOf(b *browser) string { return b.forgery("/console/") }

// The forms that were taken are bounded; the oldest are forgotten first.
func TestOnceIsBounded(t *testing.T) {
	var o once
	for i := range onceMax + 1 {
		if !o.claim(fmt.Sprint(i)) || o.claim(fmt.Sprint(i)) {
			t.Fatalf("form %d", i)
		}
	}
	if len(o.taken) != onceMax || !o.claim("0") || o.claim("") || o.claim(strings.Repeat("x", 129)) {
		t.Errorf("%d forms are kept", len(o.taken))
	}
}

// A viewer whose token has workspaces sees the pages of limits and keys. Pages about the fleet are refused, and so is
// the stream of the fleet's figures, which the console reads as itself.
func TestAViewerOfSomeWorkspacesSeesNoFleet(t *testing.T) {
	w := start(t, false)
	for _, role := range []string{"viewer", "admin"} {
		b := w.as(role + "@acme")
		if a := b.get("/console/"); a.status != http.StatusSeeOther || a.header.Get("Location") != "/console/limits" {
			t.Errorf("the first page: %d %s", a.status, a.body)
		}
		for _, page := range []string{"regions/eu", "rollouts", "rollouts/new", "rollouts/at/r1", "jobs", "health", "audit", "tokens"} {
			if a := b.get("/console/" + page); a.status != http.StatusForbidden || !strings.Contains(a.body, "this page shows the whole fleet") {
				t.Errorf("%s: %d %s", page, a.status, a.body)
			}
		}
		a := b.get("/console/keys")
		if a.status != http.StatusOK || strings.Contains(a.body, `href="/console/jobs"`) || !strings.Contains(a.body, role+" of acme</span>") {
			t.Errorf("%d %s", a.status, a.body)
		}
		l := b.listen("topic=fleet")
		if event, data, ok := l.next(); ok {
			t.Errorf("the stream of the fleet has %s %s", event, data)
		}
	}
}

// A token is made with the workspaces of the form, and listed with them.
func TestATokenIsMadeWithWorkspaces(t *testing.T) {
	w := start(t, false)
	b := w.as("admin")
	if a := b.send("/console/tokens", "/console/tokens", b.tokenForm("do", "create", "name", "ci", "role", "viewer", "workspaces", "beta, a%2Cb,beta")); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := b.get("/console/tokens"); !strings.Contains(a.body, "<code>a,b</code>, <code>beta</code></td>") {
		t.Error(a.body)
	}
	if a := b.send("/console/tokens", "/console/tokens", b.tokenForm("do", "create", "name", "cd", "role", "viewer", "workspaces", "beta,,")); a.status != http.StatusBadRequest || !strings.Contains(a.body, "workspaces: a name of 0 bytes (1 to 191)") || !strings.Contains(a.body, `value="beta,,"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}
