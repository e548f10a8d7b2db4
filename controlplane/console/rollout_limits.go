package console

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/settings/document"
)

const (
	// documentBytesMax bounds a document in a form, so that a form with a pasted and an uploaded document is not longer
	// than formBytesMax.
	documentBytesMax = 28 << 10
	prefilledMax     = 100 // overrides of a namespace that a new form begins with
)

// limitsForm is the part of a rollout's form that is only for limits.
type limitsForm struct {
	Document  string
	Protected string // callers, a line each
	Share     field  // bound of newly denied decisions
	Callers   field  // bound of newly denied callers

	Seen   string // mark of the difference that the form was shown with; empty: none
	Tuning bool   // the document has a tuning, which is left out
	change settings.Change
}

// Mark identifies the difference between the document and the stored settings. It is empty if there is none.
func (f *limitsForm) Mark() string {
	if f.change.Items() == 0 {
		return ""
	}
	text, err := json.Marshal(f.change)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// words describe changes of limits with the console's figures.
var words = limitchange.Words{Count: count[int64], Span: func(ms int64) string {
	return span(time.Duration(ms) * time.Millisecond)
}}

// Change returns the difference, an item a line.
func (f *limitsForm) Change() changeView { return words.Lines(f.change) }

// changeView has the items of a change. A page shows the first changeShown, and the others in a part that people open.
type changeView []limitchange.Line

const changeShown = 20

// Items returns the number of items.
func (c changeView) Items() int { return len(c) }

// Shown returns the first items.
func (c changeView) Shown() changeView { return c[:min(len(c), changeShown)] }

// Rest returns the other items.
func (c changeView) Rest() changeView { return c[min(len(c), changeShown):] }

// newLimitsPage shows a new form. If the address names a namespace, the form begins with its settings.
func (c rolloutPages) newLimitsPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	form := c.newPlanForm(r)
	form.Limits, form.Stages = &limitsForm{}, firstLimitsPlan(form.Regions)
	form.Limits.readRails(nil)
	q := r.URL.Query()
	if q.Get("workspace") != "" && q.Get("namespace") != "" {
		var err error
		if form.Limits.Document, err = c.documentOf(v, q.Get("workspace"), q.Get("namespace")); err != nil {
			c.broken(w, r, v, err)
			return
		}
	}
	c.render(w, r, v, http.StatusOK, "rollout-limits", "New rollout of limits", form)
}

// firstLimitsPlan returns a careful plan: the whole fleet without an effect, a tenth of the nodes of the first region
// with it, and then all after an approval.
func firstLimitsPlan(regions []string) []stageForm {
	plan := []stageForm{{Regions: "all", Bake: "10m", Approval: true}}
	if len(regions) > 0 {
		plan = []stageForm{{Regions: "all", Bake: "10m", Shadow: true}, {Regions: regions[0], Nodes: "10%", Bake: "5m"},
			plan[0]}
	}
	return numbered(plan)
}

// documentOf returns a document with a namespace and its first overrides. It is empty if that is too long for a form.
func (c rolloutPages) documentOf(v *viewer, workspace, namespace string) (string, error) {
	n, err := c.namespace(v, settings.DefaultNamespace(workspace, namespace))
	if err != nil {
		return "", err
	}
	list, err := apiclient.Ask(v.ctx, c.backend.Settings.ListOverrides,
		&controlv1.ListOverridesRequest{Workspace: workspace, Namespace: namespace})
	if err != nil {
		return "", err
	}
	d := settings.Document{Namespaces: []settings.Namespace{n}}
	for _, o := range list.GetOverrides()[:min(len(list.GetOverrides()), prefilledMax)] {
		d.Overrides = append(d.Overrides, limitchange.OverrideOf(o))
	}
	text, err := document.YAML(&d)
	if err != nil || len(text) > documentBytesMax {
		return "", nil //nolint:nilerr // names that no document can hold are left to the person
	}
	return string(text), nil
}

// changeLimits shows the form again with another stage or with its difference, or starts the rollout. A rollout starts
// only with the difference that the form was shown with.
func (c rolloutPages) changeLimits(w http.ResponseWriter, r *http.Request, v *viewer) {
	form := readLimitsForm(r)
	form.Regions = c.regions(r)
	do := r.PostForm.Get("do")
	if do == "stage" {
		form.addStage()
	}
	show := func(code int, problem string) {
		c.renderWith(w, r, v, code, "rollout-limits", "New rollout of limits", problem, form)
	}
	err := c.compare(v, form.Limits)
	switch {
	case do == "stage": // the document may be unfinished
		show(http.StatusOK, "")
		return
	case err != nil:
		show(status(err), apiclient.Words(err))
		return
	case do == "review" || form.Limits.Seen == "":
		show(http.StatusOK, "")
		return
	case form.Limits.Seen != form.Limits.Mark():
		show(http.StatusConflict, "The difference is another one than this form was shown with: the document or the stored "+
			"settings have changed. It is shown below; start the rollout again to make it.")
		return
	}
	msg, err := form.limitsRequest()
	c.start(w, r, v, msg, err, show)
}

// readLimitsForm reads the form. An uploaded document takes the place of the text.
func readLimitsForm(r *http.Request) planForm {
	form := readPlanForm(r.PostForm, base{})
	form.Limits = &limitsForm{Document: r.PostForm.Get("document"), Protected: r.PostForm.Get("protected"),
		Seen: r.PostForm.Get("difference")}
	form.Limits.readRails(r.PostForm)
	file, _, err := r.FormFile("file")
	if err != nil { // none was chosen
		return form
	}
	defer func() { _ = file.Close() }()
	if text, err := io.ReadAll(file); err == nil && len(text) > 0 { // it is in memory: the form is short
		form.Limits.Document = string(text)
	}
	return form
}

func (f *limitsForm) readRails(values url.Values) {
	f.Share = field{Name: "guard.newly_denied_share", Label: "Allowed share of newly denied decisions", Hint: "0.01",
		Value: "0.01"}
	f.Callers = field{Name: "guard.newly_denied_callers", Label: "Allowed number of newly denied callers", Hint: "10",
		Value: "10"}
	for _, one := range []*field{&f.Share, &f.Callers} {
		if values.Has(one.Name) {
			one.Value = strings.TrimSpace(values.Get(one.Name))
		}
	}
}

// compare reads the document, and the stored state of its items. Items that the document lacks stay as they are.
func (c rolloutPages) compare(v *viewer, form *limitsForm) error {
	invalid := func(err error) error { return connect.NewError(connect.CodeInvalidArgument, err) }
	if strings.TrimSpace(form.Document) == "" {
		return invalid(errors.New("the document is empty: paste or upload one, as weirctl export writes it"))
	}
	if n := len(form.Document); n > documentBytesMax {
		return invalid(fmt.Errorf("the document is %d bytes long (at most %d): for longer ones use weirctl rollout start "+
			"--limits", n, documentBytesMax))
	}
	d, err := document.Parse([]byte(form.Document))
	if err != nil {
		return invalid(err)
	}
	form.Tuning = d.Tuning != nil || len(d.RegionTuning) > 0
	if n := len(d.Namespaces) + len(d.Overrides); n > settings.ChangesMax {
		return invalid(fmt.Errorf("the document has %d items (at most %d): for more use weirctl rollout start --limits", n,
			settings.ChangesMax))
	}
	stored, err := c.storedOf(v, d)
	if err != nil {
		return err
	}
	form.change = settings.Difference(stored, d, false)
	if form.change.Items() == 0 {
		return invalid(errors.New("nothing changes: the stored settings have the values of the document"))
	}
	if err := limitchange.Check(form.change, nil); err != nil {
		return invalid(err)
	}
	return nil
}

// storedOf returns the stored state of a document's items.
func (c rolloutPages) storedOf(v *viewer, d *settings.Document) (*settings.Document, error) {
	stored := &settings.Document{}
	for _, n := range d.Namespaces {
		is, err := c.namespace(v, n)
		if err != nil {
			return nil, err
		}
		stored.Namespaces = append(stored.Namespaces, is)
	}
	for _, o := range d.Overrides {
		found, err := apiclient.Ask(v.ctx, c.backend.Settings.GetOverride, &controlv1.GetOverrideRequest{
			Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern})
		switch {
		case err == nil:
			stored.Overrides = append(stored.Overrides, limitchange.OverrideOf(found.GetOverride()))
		case connect.CodeOf(err) != connect.CodeNotFound:
			return nil, err
		}
	}
	return stored, nil
}

// namespace returns the stored settings of a namespace, or the defaults.
func (c rolloutPages) namespace(v *viewer, of settings.Namespace) (settings.Namespace, error) {
	found, err := apiclient.Ask(v.ctx, c.backend.Settings.GetNamespace,
		&controlv1.GetNamespaceRequest{Workspace: of.Workspace, Namespace: of.Namespace})
	switch {
	case connect.CodeOf(err) == connect.CodeNotFound:
		return settings.DefaultNamespace(of.Workspace, of.Namespace), nil
	case err != nil:
		return of, err
	}
	return limitchange.NamespaceOf(found.GetNamespace()), nil
}

// limitsRequest returns the API request of the form. Its errors name the field.
func (f *planForm) limitsRequest() (*controlv1.StartRolloutRequest, error) {
	plan, err := f.plan()
	if err != nil {
		return nil, err
	}
	g := plan.GetGuardrails()
	if err := number("guardrail "+f.Limits.Share.Label, f.Limits.Share.Value, &g.NewlyDeniedShare); err != nil {
		return nil, err
	}
	if text := f.Limits.Callers.Value; text != "" {
		callers, err := typedInt(text)
		if err != nil {
			return nil, fmt.Errorf("guardrail %s is %q, want a whole number", f.Limits.Callers.Label, text)
		}
		g.NewlyDeniedCallers = &callers
	}
	for line := range strings.Lines(f.Limits.Protected) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		caller, err := limitchange.Protected(line)
		if err != nil {
			return nil, err
		}
		g.Protected = append(g.Protected, caller)
	}
	return &controlv1.StartRolloutRequest{Id: f.ID, Limits: limitchange.Message(f.Limits.change), Plan: plan,
		Force: f.Force}, nil
}
