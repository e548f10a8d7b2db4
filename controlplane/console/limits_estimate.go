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

// estimateView is what a change of an override would have denied, for people to read before they confirm it.
type estimateView struct {
	Said   string
	Known  bool // some node has reported
	Oldest time.Duration
}

// deleteForm confirms that an override is to go.
type deleteForm struct {
	Was      overrideForm
	Estimate *estimateView
}

// estimate is what one change would have denied. The API's refusal of the change is an error; an estimate that
// cannot be had is words.
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

// change is the form's limit, as an estimate has it.
func (f overrideForm) change(page *namespaceView, msg *controlv1.ChangeOverrideRequest) *controlv1.LimitChange {
	return &controlv1.LimitChange{Workspace: page.GetWorkspace(), Namespace: page.Namespace.GetNamespace(),
		Pattern: f.Pattern, Limit: msg.GetLimit(), DurationMs: msg.GetDurationMs(), Shadow: f.Shadow}
}

// Mark is what an estimate of the form is of, without line breaks, which browsers change.
func (f overrideForm) Mark() string {
	return fmt.Sprintf("%q %q %q %t", f.Pattern, f.Limit, f.Duration, f.Shadow)
}

// reviewOverride shows the form again, with what it would have denied and the button that sets it.
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

// deleteForm asks to confirm that the override of a pattern goes.
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
