package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// usageRange is a range of time that ends now.
type usageRange struct {
	Name  string // in the address
	Label string
	Span  time.Duration
	Step  controlv1.UsageStep
	Live  bool // scripts refresh it
}

// usageRanges are the ranges that a person can choose.
var usageRanges = []usageRange{
	{"live", "Live", 6 * time.Hour, controlv1.UsageStep_USAGE_STEP_HOUR, true},
	{"24h", "24 hours", 24 * time.Hour, controlv1.UsageStep_USAGE_STEP_HOUR, false},
	{"7d", "7 days", 7 * 24 * time.Hour, controlv1.UsageStep_USAGE_STEP_HOUR, false},
	{"90d", "90 days", 90 * 24 * time.Hour, controlv1.UsageStep_USAGE_STEP_DAY, false},
}

const (
	usageRangeDefault = 1  // in usageRanges
	usageTop          = 20 // namespaces on the page of usage

	// Sizes in the drawings.
	usageStepWide = 10
	usageHigh     = 100
)

// usageRangeOf returns the range of an address, or the default for an empty name. For an unknown name it also returns
// an error.
func usageRangeOf(name string) (usageRange, error) {
	if name == "" {
		return usageRanges[usageRangeDefault], nil
	}
	i := slices.IndexFunc(usageRanges, func(r usageRange) bool { return r.Name == name })
	if i < 0 {
		return usageRanges[usageRangeDefault], connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("usage is %q (live, 24h, 7d or 90d)", name))
	}
	return usageRanges[i], nil
}

// usageView is the usage of a namespace, or of the namespaces with the most cost, in a range.
type usageView struct {
	Range   usageRange
	Here    string // the address of the page without a range
	Problem string // why there is no answer

	*controlv1.GetUsageResponse
	Series []usageSeries
}

// usageSeries is the usage of a namespace with its drawing.
type usageSeries struct {
	*controlv1.UsageSeries
	Steps []usageStep
	Width int   // of the drawing
	Most  int64 // the cost at the top of the drawing

	// Accepted, Denied and Unknown are the paths of the drawing. Steps that are unknown have no bars.
	Accepted, Denied, Unknown string
}

// usageStep is a row of a series' table.
type usageStep struct {
	*controlv1.UsageTime
	Accepted, Denied int64
}

// readUsage returns the usage of a namespace, or of the namespaces with the most cost if namespace is empty, in the
// range that the request names. Errors are in its Problem, and code is the status of a page that shows nothing else.
func (c *Console) readUsage(r *http.Request, v *viewer, here, workspace, namespace string) (view usageView, code int) {
	view.Here = here
	var err error
	if view.Range, err = usageRangeOf(r.URL.Query().Get("usage")); err != nil {
		view.Problem = apiclient.Words(err)
		return view, status(err)
	}
	found, err := apiclient.Ask(v.ctx, c.backend.TopKeys.GetUsage, &controlv1.GetUsageRequest{Workspace: workspace,
		Namespace: namespace, FromMs: time.Now().Add(-view.Range.Span).UnixMilli(), Step: view.Range.Step,
		Limit: usageTop})
	if err != nil {
		view.Problem = apiclient.Words(err)
		return view, status(err)
	}
	view.GetUsageResponse = found
	for _, s := range found.GetSeries() {
		if len(found.GetSteps()) == 0 {
			break // there is nothing to draw
		}
		view.Series = append(view.Series, drawUsage(s, found.GetSteps()))
	}
	return view, http.StatusOK
}

func drawUsage(s *controlv1.UsageSeries, times []*controlv1.UsageTime) usageSeries {
	drawn := usageSeries{UsageSeries: s, Width: usageStepWide * len(times), Most: 1}
	for i, t := range times {
		step := usageStep{UsageTime: t}
		if i < len(s.GetAcceptedSteps()) && i < len(s.GetDeniedSteps()) {
			step.Accepted, step.Denied = s.GetAcceptedSteps()[i], s.GetDeniedSteps()[i]
		}
		if t.GetKnown() {
			drawn.Most = max(drawn.Most, addCost(step.Accepted, step.Denied))
		}
		drawn.Steps = append(drawn.Steps, step)
	}
	var accepted, denied, unknown strings.Builder
	for i, step := range drawn.Steps {
		x := usageStepWide * i
		if !step.GetKnown() {
			fmt.Fprintf(&unknown, "M%d 0h%dV%dh-%dz", x, usageStepWide, usageHigh, usageStepWide) // joins the next
			continue
		}
		top, middle := usageY(addCost(step.Accepted, step.Denied), drawn.Most), usageY(step.Accepted, drawn.Most)
		if step.Denied > 0 { // its bar must be visible, however small it is
			middle = max(1, middle)
			top = min(top, middle-1)
		}
		usageBar(&accepted, x, middle, usageHigh)
		usageBar(&denied, x, top, middle)
	}
	drawn.Accepted, drawn.Denied, drawn.Unknown = accepted.String(), denied.String(), unknown.String()
	return drawn
}

// addCost returns the sum of two costs, or the most that an int64 can hold.
func addCost(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}

// usageY returns the distance of a cost from the top of the drawing. Only a cost of 0 has no height.
func usageY(cost, most int64) int {
	if cost <= 0 {
		return usageHigh
	}
	return usageHigh - max(1, int(float64(usageHigh)*float64(cost)/float64(most)))
}

// usageBar adds the rectangle of a step to a path, with a gap between two steps.
func usageBar(path *strings.Builder, x, top, bottom int) {
	if top < bottom {
		fmt.Fprintf(path, "M%d %dh%dV%dh-%dz", x, top, usageStepWide-1, bottom, usageStepWide-1)
	}
}

// Ranges returns the ranges that can be chosen.
func (u usageView) Ranges() []usageRange { return usageRanges }

// To returns the address of the page with a range.
func (u usageView) To(r usageRange) string {
	sep := "?"
	if strings.Contains(u.Here, "?") {
		sep = "&"
	}
	return u.Here + sep + url.Values{"usage": {r.Name}}.Encode() + "#usage"
}

// Unit returns the name of a step.
func (u usageView) Unit() string {
	if u.GetStepMs() > time.Hour.Milliseconds() {
		return "day"
	}
	return "hour"
}

// At formats the start of a step.
func (u usageView) At(ms int64) string {
	layout := "2006-01-02 15:04"
	if u.Unit() == "day" {
		layout = time.DateOnly
	}
	return time.UnixMilli(ms).UTC().Format(layout)
}

// Begins returns the start of the first step.
func (u usageView) Begins() string { return u.At(u.GetSteps()[0].GetAtMs()) }

// Ends returns the start of the last step.
func (u usageView) Ends() string { return u.At(u.GetSteps()[len(u.GetSteps())-1].GetAtMs()) }

// Middle returns the start of the step in the middle.
func (u usageView) Middle() string { return u.At(u.GetSteps()[len(u.GetSteps())/2].GetAtMs()) }

// Unknown returns the number of steps that are unknown.
func (u usageView) Unknown() (n int) {
	for _, t := range u.GetSteps() {
		if !t.GetKnown() {
			n++
		}
	}
	return n
}

// Missing returns the regions that did not report in some step, sorted.
func (u usageView) Missing() (regions []string) {
	for _, t := range u.GetSteps() {
		regions = append(regions, t.GetMissingRegions()...)
	}
	slices.Sort(regions)
	return slices.Compact(regions)
}

// Reported reports whether any region has reported in the range. If none has, all are missing in each step.
func (u usageView) Reported() bool {
	all := len(u.Missing())
	return slices.ContainsFunc(u.GetSteps(), func(t *controlv1.UsageTime) bool {
		return t.GetKnown() || len(t.GetMissingRegions()) < all
	}) || slices.ContainsFunc(u.Series, func(s usageSeries) bool { return s.GetAccepted() > 0 || s.GetDenied() > 0 })
}

// Last returns the step that is under way.
func (s usageSeries) Last() usageStep { return s.Steps[len(s.Steps)-1] }

// Link returns the address of the namespace's page. It is empty for the namespaces that nodes had no room for.
func (s usageSeries) Link() string {
	if s.GetWorkspace() == "" {
		return ""
	}
	return limitsOf(s.GetWorkspace(), s.GetNamespace()) + "#usage"
}

func (c *Console) usagePage(w http.ResponseWriter, r *http.Request, v *viewer) {
	page, code := c.readUsage(r, v, "/console/usage", "", "")
	c.render(w, r, v, code, "usage", "Usage", page)
}
