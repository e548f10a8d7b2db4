package console

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/limitwords"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// estimateView shows which requests a change of an override would have denied. People read it before they confirm the
// change.
type estimateView struct {
	Said   string
	Known  bool // at least one node has reported
	Oldest time.Duration
}

// deleteForm is the form that confirms the deletion of an override.
type deleteForm struct {
	Was      overrideForm
	Estimate *estimateView
}

// estimate returns the decisions that one change would have denied. It returns an error only if the API rejects the
// change. If the estimate is unavailable, Said has the reason.
func (c limitPages) estimate(v *viewer, change *controlv1.LimitChange) (*estimateView, error) {
	found, err := apiclient.Ask(v.ctx, c.backend.TopKeys.EstimateLimits,
		&controlv1.EstimateLimitsRequest{Changes: []*controlv1.LimitChange{change}})
	switch {
	case connect.CodeOf(err) == connect.CodeInvalidArgument:
		return nil, connect.NewError(connect.CodeInvalidArgument,
			errors.New(strings.Replace(apiclient.Words(err), "changes[0]: ", "", 1)))
	case err != nil:
		return &estimateView{Said: limitwords.Unknown(1, apiclient.Words(err))}, nil
	}
	return &estimateView{Said: limitwords.Say(found, 1, count[int64]), Known: found.GetNodes() > 0,
		Oldest: time.Duration(found.GetOldestMs()) * time.Millisecond}, nil
}

// change returns the limit in the form as an estimate expects it.
func (f overrideForm) change(page *namespaceView, msg *controlv1.ChangeOverrideRequest) *controlv1.LimitChange {
	return &controlv1.LimitChange{Workspace: page.GetWorkspace(), Namespace: page.Namespace.GetNamespace(),
		Pattern: f.Pattern, Limit: msg.GetLimit(), DurationMs: msg.GetDurationMs(), Shadow: f.Shadow}
}

// Mark identifies the values that an estimate was made for. It has no line breaks, because browsers change line breaks
// in forms.
func (f overrideForm) Mark() string {
	return fmt.Sprintf("%q %q %q %t", f.Pattern, f.Limit, f.Duration, f.Shadow)
}

// reviewOverride shows the form again with its estimate and the button that sets the override.
func (c limitPages) reviewOverride(w http.ResponseWriter, r *http.Request, v *viewer, page namespaceView,
	msg *controlv1.ChangeOverrideRequest) {
	estimate, err := c.estimate(v, page.Edit.change(&page, msg))
	if err != nil {
		c.showNamespace(w, r, v, status(err), apiclient.Words(err), page)
		return
	}
	page.Edit.Estimate = estimate
	c.showNamespace(w, r, v, http.StatusOK, "", page)
}

// deleteForm returns the form that confirms the deletion of a pattern's override.
func (c limitPages) deleteForm(v *viewer, page *namespaceView, pattern string) (*deleteForm, error) {
	workspace, namespace := page.GetWorkspace(), page.Namespace.GetNamespace()
	found, err := apiclient.Ask(v.ctx, c.backend.Settings.GetOverride, &controlv1.GetOverrideRequest{Workspace: workspace,
		Namespace: namespace, Pattern: pattern})
	if err != nil {
		return nil, err
	}
	estimate, err := c.estimate(v, &controlv1.LimitChange{Workspace: workspace, Namespace: namespace, Pattern: pattern,
		Deleted: true})
	if err != nil {
		return nil, err
	}
	return &deleteForm{Was: formOf(found.GetOverride()), Estimate: estimate}, nil
}
