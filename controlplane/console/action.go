package console

import (
	"net/http"
	"net/url"
	"strings"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// action is a form that makes a change. It has hidden fields, the operator's name if the API requires no tokens, a
// reason, and a button.
type action struct {
	view
	To     string   // path that the form is posted to
	Do     string   // value of the form field "do"
	Label  string   // of the button
	Ask    string   // a sentence that explains the action
	Danger bool     // the action removes something, for example a token
	Hidden []hidden // further fields
}

type hidden struct{ Name, Value string }

// newAction makes an action for a template. The names and values of further hidden fields alternate in fields. A label
// that begins with '!' marks an action that removes something.
func newAction(v view, to, do, label, ask string, fields ...string) action {
	a := action{view: v, To: to, Do: do, Label: strings.TrimPrefix(label, "!"), Ask: ask,
		Danger: strings.HasPrefix(label, "!")}
	for i := 0; i+1 < len(fields); i += 2 {
		a.Hidden = append(a.Hidden, hidden{fields[i], fields[i+1]})
	}
	return a
}

const actorCookie = "weir_actor"

// by returns the operator's name and reason for a change. If the API requires tokens, the name is the token's;
// otherwise it is the name in the form, which a cookie keeps for the next form.
func (c *Console) by(w http.ResponseWriter, r *http.Request, v *viewer) (actor, reason string) {
	actor, reason = v.Name, strings.TrimSpace(r.PostForm.Get("reason"))
	if v.Open {
		actor = strings.TrimSpace(r.PostForm.Get("actor"))
		http.SetCookie(w, &http.Cookie{Name: actorCookie, Value: url.QueryEscape(actor), Path: "/console/", HttpOnly: true,
			Secure: c.overTLS(r), SameSite: http.SameSiteStrictMode, MaxAge: 30 * 24 * 3600})
	}
	return actor, reason
}

// actorOf returns the name that was entered last in this browser, or an empty text.
func actorOf(r *http.Request) string {
	if actor := r.PostFormValue("actor"); actor != "" {
		return actor
	}
	c, err := r.Cookie(actorCookie)
	if err != nil {
		return ""
	}
	actor, err := url.QueryUnescape(c.Value)
	if err != nil {
		return ""
	}
	return actor
}

// done redirects to a page that confirms the action. Reloading that page does not repeat the action.
func done(w http.ResponseWriter, r *http.Request, to, did string, query url.Values) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("did", did)
	http.Redirect(w, r, to+"?"+query.Encode(), http.StatusSeeOther)
}

// rolloutActions maps the form field "do" to the action on a rollout.
var rolloutActions = map[string]controlv1.RolloutAction{
	"approve":  controlv1.RolloutAction_ROLLOUT_ACTION_APPROVE,
	"pause":    controlv1.RolloutAction_ROLLOUT_ACTION_PAUSE,
	"resume":   controlv1.RolloutAction_ROLLOUT_ACTION_RESUME,
	"abort":    controlv1.RolloutAction_ROLLOUT_ACTION_ABORT,
	"rollback": controlv1.RolloutAction_ROLLOUT_ACTION_ROLLBACK,
}
