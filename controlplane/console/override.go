package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// overrideForm is the form that sets an override: all of it, as it was when the form was
// made, so that what is left alone stays.
type overrideForm struct {
	Pattern   string
	Limit     string
	Duration  string // empty: the request's
	Candidate string // empty: none
	Shadow    bool
	SeenMs    int64 // when it was changed last, 0 for one that is not there

	Reason   string
	Estimate *estimateView // nil: it has not been reviewed
}

// overrideForm is the form of the override that there is of a pattern, or of a new one.
func (c limitPages) overrideForm(v *viewer, workspace, namespace, pattern string) overrideForm {
	found, err := apiclient.Ask(v.ctx, c.backend.Settings.GetOverride, &controlv1.GetOverrideRequest{Workspace: workspace,
		Namespace: namespace, Pattern: pattern})
	if err != nil { // one that cannot be read is not changed either: its form says that it is new
		return overrideForm{Pattern: pattern}
	}
	return formOf(found.GetOverride())
}

// formOf is the form of an override that there is.
func formOf(o *controlv1.Override) overrideForm {
	form := overrideForm{Pattern: o.GetPattern(), Limit: strconv.FormatInt(o.GetLimit(), 10), Shadow: o.GetShadow(),
		SeenMs: o.GetUpdatedAtMs()}
	if ms := o.GetDurationMs(); ms > 0 {
		form.Duration = typed(time.Duration(ms) * time.Millisecond)
	}
	if candidate := o.GetCandidate(); candidate > 0 {
		form.Candidate = strconv.FormatInt(candidate, 10)
	}
	return form
}

// typed is a length of time as people type it: 1h and not 1h0m0s.
func typed(d time.Duration) string {
	text := d.String()
	if whole, cut := strings.CutSuffix(text, "m0s"); cut {
		text = whole + "m"
	}
	if whole, cut := strings.CutSuffix(text, "h0m"); cut {
		text = whole + "h"
	}
	return text
}

func readOverrideForm(f url.Values) overrideForm {
	return overrideForm{
		Pattern: f.Get("pattern"), Limit: strings.TrimSpace(f.Get("limit")), Duration: strings.TrimSpace(f.Get("duration")),
		Candidate: strings.TrimSpace(f.Get("candidate")), Shadow: f.Get("shadow") != "", SeenMs: seenMs(f),
		Reason: f.Get("reason"),
	}
}

// changeOverride deletes an override, or sets what the form holds. What has not been reviewed as it stands is reviewed
// first.
func (c limitPages) changeOverride(w http.ResponseWriter, r *http.Request, v *viewer) {
	f := r.PostForm
	page := newNamespaceView(f.Get("workspace"), f.Get("namespace"))
	here := spaceOf(page.GetWorkspace(), page.Namespace.GetNamespace())
	actor, reason := c.by(w, r, v)
	if f.Get("do") == "delete" {
		msg := &controlv1.DeleteOverrideRequest{Actor: actor, Reason: reason, Workspace: page.GetWorkspace(),
			Namespace: page.Namespace.GetNamespace(), Pattern: f.Get("pattern")}
		if f.Has("seen") {
			seen := seenMs(f)
			msg.IfUpdatedAtMs = &seen
		}
		if _, err := apiclient.Ask(v.ctx, c.backend.Settings.DeleteOverride, msg); err != nil {
			c.showNamespace(w, r, v, status(err), apiclient.Words(err), page)
			return
		}
		done(w, r, "/console/limits/namespace", "override.delete", here)
		return
	}
	page.Edit = readOverrideForm(f)
	msg, err := page.Edit.request()
	if err != nil {
		c.showNamespace(w, r, v, http.StatusBadRequest, err.Error(), page)
		return
	}
	if f.Get("do") == "review" || f.Has("reviewed") && f.Get("reviewed") != page.Edit.Mark() {
		c.reviewOverride(w, r, v, page, msg)
		return
	}
	msg.Actor, msg.Reason, msg.Workspace, msg.Namespace = actor, reason, page.GetWorkspace(), page.Namespace.GetNamespace()
	if _, err := apiclient.Ask(v.ctx, c.backend.Settings.ChangeOverride, msg); err != nil {
		problem := apiclient.Words(err)
		if connect.CodeOf(err) == connect.CodeFailedPrecondition {
			is := c.overrideForm(v, msg.GetWorkspace(), msg.GetNamespace(), msg.GetPattern())
			page.Edit.SeenMs = is.SeenMs
			problem += ". " + is.Sentence() + " The form keeps your values; send it again to set them."
			page.Edit.Estimate, _ = c.estimate(v, page.Edit.change(&page, msg)) // the API has taken it for a valid one
		}
		c.showNamespace(w, r, v, status(err), problem, page)
		return
	}
	done(w, r, "/console/limits/namespace", "override.set", here)
}

// request is what the form asks for. Bounds are the API's to say.
func (f overrideForm) request() (*controlv1.ChangeOverrideRequest, error) {
	limit, err := typedInt(f.Limit)
	if err != nil {
		return nil, fmt.Errorf("limit is %q, want a whole number: 0 blocks", f.Limit)
	}
	var ms int64
	if f.Duration != "" {
		if ms, err = typedMs(f.Duration); err != nil {
			return nil, fmt.Errorf("duration is %q, want something like 60s, 1h, or nothing to keep the request's", f.Duration)
		}
	}
	var candidate int64
	if f.Candidate != "" {
		if candidate, err = typedInt(f.Candidate); err != nil {
			return nil, fmt.Errorf("candidate is %q, want a whole number, or nothing for none", f.Candidate)
		}
	}
	return &controlv1.ChangeOverrideRequest{Pattern: f.Pattern, Limit: &limit, DurationMs: &ms, Candidate: &candidate,
		Shadow: &f.Shadow, IfUpdatedAtMs: &f.SeenMs}, nil
}

// Sentence is what is there.
func (f overrideForm) Sentence() string {
	if f.SeenMs == 0 {
		return "There is none now."
	}
	text := "It is now a limit of " + f.Limit
	if f.Duration != "" {
		text += " in " + f.Duration
	}
	if f.Candidate != "" {
		text += ", with the candidate " + f.Candidate
	}
	if f.Shadow {
		text += ", in shadow mode"
	}
	return text + "."
}
