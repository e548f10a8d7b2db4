package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// limitsView is a workspace's namespaces.
type limitsView struct {
	Workspace  string
	Namespaces []*controlv1.Namespace
	Problem    string
}

func (c *Console) limitsPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	page := limitsView{Workspace: strings.TrimSpace(r.URL.Query().Get("workspace"))}
	if namespace := strings.TrimSpace(r.URL.Query().Get("namespace")); namespace != "" && page.Workspace != "" {
		http.Redirect(w, r, "/console/limits/namespace?"+url.Values{"workspace": {page.Workspace}, "namespace": {namespace}}.Encode(), http.StatusSeeOther)
		return
	}
	code := http.StatusOK
	if page.Workspace != "" {
		found, err := ask(v.ctx, c.backend.settings.ListNamespaces, &controlv1.ListNamespacesRequest{Workspace: page.Workspace})
		if err != nil {
			code, page.Problem = status(err), words(err)
		}
		page.Namespaces = found.GetNamespaces()
	}
	c.render(w, r, v, code, "limits", "Limits", page)
}

// namespaceView is one namespace with a page of its overrides.
type namespaceView struct {
	*controlv1.Namespace
	Set       bool // it has settings of its own
	Overrides []*controlv1.Override
	After     string // the pattern that the page comes after
	Next      string // the one that the next page comes after; empty: this is the last
	Edit      overrideForm
}

// overrideForm is the form that sets an override.
type overrideForm struct{ Pattern, Limit, Duration string }

const overridesShown = 100

func (c *Console) namespacePage(w http.ResponseWriter, r *http.Request, v *viewer) {
	q := r.URL.Query()
	c.showNamespace(w, r, v, http.StatusOK, "", q.Get("workspace"), q.Get("namespace"), q.Get("after"), overrideForm{q.Get("pattern"), q.Get("limit"), q.Get("duration")})
}

func (c *Console) showNamespace(w http.ResponseWriter, r *http.Request, v *viewer, code int, problem, workspace, namespace, after string, edit overrideForm) {
	page := namespaceView{Namespace: &controlv1.Namespace{Workspace: workspace, Namespace: namespace, Mode: "exact", Outage: "local", Headroom: "kick"}, After: after, Edit: edit}
	names, err := ask(v.ctx, c.backend.settings.ListNamespaces, &controlv1.ListNamespacesRequest{Workspace: workspace})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	for _, n := range names.GetNamespaces() {
		if n.GetNamespace() == namespace {
			page.Namespace, page.Set = n, true
		}
	}
	list, err := ask(v.ctx, c.backend.settings.ListOverrides, &controlv1.ListOverridesRequest{Workspace: workspace, Namespace: namespace, After: after})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	page.Overrides = list.GetOverrides()
	if len(page.Overrides) > overridesShown {
		page.Overrides = page.Overrides[:overridesShown]
		page.Next = page.Overrides[overridesShown-1].GetPattern()
	} else if list.GetHasMore() {
		page.Next = page.Overrides[len(page.Overrides)-1].GetPattern()
	}
	c.renderWith(w, r, v, code, "namespace", namespace, problem, page)
}

// Here is the address of the namespace's page.
func (n namespaceView) Here() string {
	return "/console/limits/namespace?" + url.Values{"workspace": {n.Namespace.GetWorkspace()}, "namespace": {n.Namespace.GetNamespace()}}.Encode()
}

func (c *Console) changeNamespace(w http.ResponseWriter, r *http.Request, v *viewer) {
	f := r.PostForm
	shadow := f.Get("shadow") != ""
	mode, outage, headroom := f.Get("mode"), f.Get("outage"), f.Get("headroom")
	msg := &controlv1.SetNamespaceRequest{Workspace: f.Get("workspace"), Namespace: f.Get("namespace"), Shadow: &shadow, Mode: &mode, Outage: &outage, Headroom: &headroom}
	if estimate := strings.TrimSpace(f.Get("estimate")); f.Has("estimate") {
		msg.Estimate = &estimate
	}
	msg.Actor, msg.Reason = by(w, r, v)
	if _, err := ask(v.ctx, c.backend.settings.SetNamespace, msg); err != nil {
		c.showNamespace(w, r, v, status(err), words(err), msg.GetWorkspace(), msg.GetNamespace(), "", overrideForm{})
		return
	}
	done(w, r, "/console/limits/namespace", "namespace.set", url.Values{"workspace": {msg.GetWorkspace()}, "namespace": {msg.GetNamespace()}})
}

func (c *Console) changeOverride(w http.ResponseWriter, r *http.Request, v *viewer) {
	f := r.PostForm
	workspace, namespace := f.Get("workspace"), f.Get("namespace")
	edit := overrideForm{f.Get("pattern"), strings.TrimSpace(f.Get("limit")), strings.TrimSpace(f.Get("duration"))}
	fail := func(code int, problem string) {
		c.showNamespace(w, r, v, code, problem, workspace, namespace, "", edit)
	}
	actor, reason := by(w, r, v)
	did := "override.set"
	var err error
	if f.Get("do") == "delete" {
		did = "override.delete"
		edit = overrideForm{}
		_, err = ask(v.ctx, c.backend.settings.DeleteOverride, &controlv1.DeleteOverrideRequest{Actor: actor, Reason: reason, Workspace: workspace, Namespace: namespace, Pattern: f.Get("pattern")})
	} else {
		var o *controlv1.Override
		if o, err = edit.override(workspace, namespace); err != nil {
			fail(http.StatusBadRequest, err.Error())
			return
		}
		_, err = ask(v.ctx, c.backend.settings.SetOverride, &controlv1.SetOverrideRequest{Actor: actor, Reason: reason, Override: o})
	}
	if err != nil {
		fail(status(err), words(err))
		return
	}
	done(w, r, "/console/limits/namespace", did, url.Values{"workspace": {workspace}, "namespace": {namespace}})
}

// override reads the form. Bounds are the API's to say.
func (f overrideForm) override(workspace, namespace string) (*controlv1.Override, error) {
	limit, err := strconv.ParseInt(f.Limit, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("limit is %q, want a whole number: 0 blocks", f.Limit)
	}
	o := &controlv1.Override{Workspace: workspace, Namespace: namespace, Pattern: f.Pattern, Limit: limit}
	if f.Duration != "" {
		d, err := time.ParseDuration(f.Duration)
		if err != nil {
			return nil, fmt.Errorf("duration is %q, want something like 60s, 1h, or nothing to keep the request's", f.Duration)
		}
		o.DurationMs = d.Milliseconds()
	}
	return o, nil
}
