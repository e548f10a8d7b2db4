package console

import (
	"net/http"
	"net/url"
	"strings"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// action is a form that changes something: hidden fields, who where the API does not
// know, why, and a button.
type action struct {
	view
	To     string   // where it is posted
	Do     string   // what is asked for
	Label  string   // of the button
	Ask    string   // what it means, in a sentence
	Danger bool     // it takes something away
	Hidden []hidden // further fields
}

type hidden struct{ Name, Value string }

// newAction is for templates: further fields are names and values in turns. A label that
// begins with '!' is one that takes something away.
func newAction(v view, to, do, label, ask string, fields ...string) action {
	a := action{view: v, To: to, Do: do, Label: strings.TrimPrefix(label, "!"), Ask: ask,
		Danger: strings.HasPrefix(label, "!")}
	for i := 0; i+1 < len(fields); i += 2 {
		a.Hidden = append(a.Hidden, hidden{fields[i], fields[i+1]})
	}
	return a
}

const actorCookie = "weir_actor"

// by is who makes a change, and why. Where the API knows who, it does not ask.
func (c *Console) by(w http.ResponseWriter, r *http.Request, v *viewer) (actor, reason string) {
	actor, reason = v.Name, strings.TrimSpace(r.PostForm.Get("reason"))
	if v.Open {
		actor = strings.TrimSpace(r.PostForm.Get("actor"))
		http.SetCookie(w, &http.Cookie{Name: actorCookie, Value: url.QueryEscape(actor), Path: "/console/", HttpOnly: true,
			Secure: c.overTLS(r), SameSite: http.SameSiteStrictMode, MaxAge: 30 * 24 * 3600})
	}
	return actor, reason
}

// actorOf is who was named last in this browser.
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

// done goes on to a page that says what was done: loading it again does nothing twice.
func done(w http.ResponseWriter, r *http.Request, to, did string, query url.Values) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("did", did)
	http.Redirect(w, r, to+"?"+query.Encode(), http.StatusSeeOther)
}

// rolloutActions are what can be done with a rollout, by the name that forms have for it.
var rolloutActions = map[string]controlv1.RolloutAction{
	"approve":  controlv1.RolloutAction_ROLLOUT_ACTION_APPROVE,
	"pause":    controlv1.RolloutAction_ROLLOUT_ACTION_PAUSE,
	"resume":   controlv1.RolloutAction_ROLLOUT_ACTION_RESUME,
	"abort":    controlv1.RolloutAction_ROLLOUT_ACTION_ABORT,
	"rollback": controlv1.RolloutAction_ROLLOUT_ACTION_ROLLBACK,
}
