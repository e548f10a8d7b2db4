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
	"github.com/weirhq/weir/shared/window"
)

// overrideForm is the form that sets an override. It holds all fields of the override, so that fields which the
// operator does not change keep their values.
type overrideForm struct {
	Pattern   string
	Limit     string
	Duration  string // empty: the request's duration applies
	Candidate string // empty: no candidate
	Shadow    bool
	SeenMs    int64 // time of the last change; 0: there is no override

	Reason   string
	Estimate *estimateView // nil: the form has not been reviewed
}

// overrideForm returns the form of a pattern's override, or of a new override.
func (c limitPages) overrideForm(v *viewer, workspace, namespace, pattern string) overrideForm {
	found, err := apiclient.Ask(v.ctx, c.backend.Settings.GetOverride, &controlv1.GetOverrideRequest{Workspace: workspace,
		Namespace: namespace, Pattern: pattern})
	if err != nil { // an override that cannot be read is not changed either, because the form expects that there is none
		return overrideForm{Pattern: pattern}
	}
	return formOf(found.GetOverride())
}

// formOf returns the form of an existing override.
func formOf(o *controlv1.Override) overrideForm {
	form := overrideForm{Pattern: o.GetPattern(), Limit: strconv.FormatInt(o.GetLimit(), 10), Shadow: o.GetShadow(),
		SeenMs: o.GetUpdatedAtMs()}
	if o.GetLimit() == window.LimitMax {
		form.Limit = unlimited
	}
	if ms := o.GetDurationMs(); ms > 0 {
		form.Duration = typed(time.Duration(ms) * time.Millisecond)
	}
	if candidate := o.GetCandidate(); candidate > 0 {
		form.Candidate = strconv.FormatInt(candidate, 10)
	}
	return form
}

// unlimited is how people type the largest limit, and how pages show it.
const unlimited = "unlimited"

// typed formats a duration as people can type it, for example 1h instead of 1h0m0s.
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

// changeOverride deletes an override, or sets the values of the form. If the values have not been reviewed as they are,
// it shows the review first.
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
			page.Edit.Estimate, _ = c.estimate(v, page.Edit.change(&page, msg)) // the API has accepted the values
		}
		c.showNamespace(w, r, v, status(err), problem, page)
		return
	}
	done(w, r, "/console/limits/namespace", "override.set", here)
}

// request returns the API request of the form. The API checks the bounds.
func (f overrideForm) request() (*controlv1.ChangeOverrideRequest, error) {
	limit := int64(window.LimitMax)
	var err error
	if f.Limit != unlimited {
		if limit, err = typedInt(f.Limit); err != nil {
			return nil, fmt.Errorf("limit is %q, want a whole number (0 blocks), or %s", f.Limit, unlimited)
		}
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

// Sentence describes the current override.
func (f overrideForm) Sentence() string {
	if f.SeenMs == 0 {
		return "There is no override now."
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
