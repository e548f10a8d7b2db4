package console

import (
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// limitsView has a workspace's namespaces.
type limitsView struct {
	Workspace  string
	Namespaces []*controlv1.Namespace
	After      string // the page begins after this namespace
	Next       string // the next page begins after this namespace; empty: this is the last page
	Problem    string
	Names      names
}

func (c limitPages) limitsPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	page := limitsView{Workspace: strings.TrimSpace(r.URL.Query().Get("workspace"))}
	if namespace := strings.TrimSpace(r.URL.Query().Get("namespace")); namespace != "" && page.Workspace != "" {
		http.Redirect(w, r, limitsOf(page.Workspace, namespace), http.StatusSeeOther)
		return
	}
	seen, problem := c.seenKeys(v)
	page.Names = c.listNames(v, seen, problem)
	code := http.StatusOK
	if page.Workspace != "" {
		page.After = r.URL.Query().Get("after")
		found, err := apiclient.Ask(v.ctx, c.backend.Settings.ListNamespaces,
			&controlv1.ListNamespacesRequest{Workspace: page.Workspace, After: page.After})
		if err != nil {
			code, page.Problem = status(err), apiclient.Words(err)
		}
		page.Namespaces, page.Next = firstOf(found.GetNamespaces(), namespacesShown, found.GetHasMore(),
			(*controlv1.Namespace).GetNamespace)
	}
	c.render(w, r, v, code, "limits", "Limits", page)
}

// namespaceView is a namespace with a page of its overrides.
type namespaceView struct {
	*controlv1.Namespace
	Set       bool                 // it has settings of its own
	Form      *controlv1.Namespace // the values in the settings form
	Overrides []*controlv1.Override
	After     string // the page begins after this pattern
	Next      string // the next page begins after this pattern; empty: this is the last page
	Edit      overrideForm
	Delete    *deleteForm // nil: no deletion is to be confirmed
	Usage     usageView
}

// overridesShown is the number of overrides on a page.
const overridesShown = 50

// namespacesShown is the number of namespaces on a page.
const namespacesShown = 200

func (c limitPages) namespacePage(w http.ResponseWriter, r *http.Request, v *viewer) {
	q := r.URL.Query()
	page := newNamespaceView(q.Get("workspace"), q.Get("namespace"))
	page.After = q.Get("after")
	if pattern := q.Get("pattern"); pattern != "" {
		page.Edit = c.overrideForm(v, page.GetWorkspace(), page.Namespace.GetNamespace(), pattern)
	}
	if pattern := q.Get("delete"); pattern != "" && v.May("operator") {
		var err error
		if page.Delete, err = c.deleteForm(v, &page, pattern); err != nil {
			c.showNamespace(w, r, v, status(err), apiclient.Words(err), page)
			return
		}
	}
	c.showNamespace(w, r, v, http.StatusOK, "", page)
}

func newNamespaceView(workspace, namespace string) namespaceView {
	return namespaceView{Namespace: &controlv1.Namespace{Workspace: workspace, Namespace: namespace, Mode: "exact",
		Outage: "local", NodeShare: "wait", Window: "cells"}}
}

func (c limitPages) showNamespace(w http.ResponseWriter, r *http.Request, v *viewer, code int, problem string,
	page namespaceView) {
	workspace, namespace := page.GetWorkspace(), page.Namespace.GetNamespace()
	found, err := apiclient.Ask(v.ctx, c.backend.Settings.GetNamespace,
		&controlv1.GetNamespaceRequest{Workspace: workspace, Namespace: namespace})
	switch {
	case err == nil:
		page.Namespace, page.Set = found.GetNamespace(), true
	case connect.CodeOf(err) != connect.CodeNotFound:
		c.broken(w, r, v, err)
		return
	}
	if page.Form == nil {
		page.Form = page.Namespace
	}
	list, err := apiclient.Ask(v.ctx, c.backend.Settings.ListOverrides,
		&controlv1.ListOverridesRequest{Workspace: workspace, Namespace: namespace, After: page.After})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	page.Overrides, page.Next = firstOf(list.GetOverrides(), overridesShown, list.GetHasMore(),
		(*controlv1.Override).GetPattern)
	var read int
	// Without usage, the page is still useful. Only a range that does not exist is the requester's mistake.
	page.Usage, read = c.readUsage(r, v, page.Here(), workspace, namespace)
	if code == http.StatusOK && read == http.StatusBadRequest {
		code = read
	}
	c.renderWith(w, r, v, code, "namespace", namespace, problem, page)
}

// Refused reports whether the settings form holds values that were not set.
func (n namespaceView) Refused() bool { return n.Form != n.Namespace }

// Here returns the address of the namespace's page.
func (n namespaceView) Here() string {
	return limitsOf(n.Namespace.GetWorkspace(), n.Namespace.GetNamespace())
}

// changeNamespace sets all values of the form. If the settings have changed since the form was shown, nothing is set:
// the form is shown again with its values, and the page shows the current settings.
func (c limitPages) changeNamespace(w http.ResponseWriter, r *http.Request, v *viewer) {
	f := r.PostForm
	page := newNamespaceView(f.Get("workspace"), f.Get("namespace"))
	page.Form = &controlv1.Namespace{Shadow: f.Get("shadow") != "", Mode: f.Get("mode"), Outage: f.Get("outage"),
		NodeShare: f.Get("node_share"), Window: f.Get("window"), Estimate: strings.TrimSpace(f.Get("estimate"))}
	seen := seenMs(f)
	msg := &controlv1.SetNamespaceRequest{
		Workspace: page.GetWorkspace(), Namespace: page.Namespace.GetNamespace(), Shadow: &page.Form.Shadow,
		Mode:   &page.Form.Mode,
		Outage: &page.Form.Outage, NodeShare: &page.Form.NodeShare, Window: &page.Form.Window,
		Estimate: &page.Form.Estimate, IfUpdatedAtMs: &seen,
	}
	msg.Actor, msg.Reason = c.by(w, r, v)
	if _, err := apiclient.Ask(v.ctx, c.backend.Settings.SetNamespace, msg); err != nil {
		problem := apiclient.Words(err)
		if connect.CodeOf(err) == connect.CodeFailedPrecondition {
			problem += ". The current settings are shown below. The form keeps your values; send it again to replace them."
		}
		c.showNamespace(w, r, v, status(err), problem, page)
		return
	}
	done(w, r, "/console/limits/namespace", "namespace.set", spaceOf(msg.GetWorkspace(), msg.GetNamespace()))
}

// seenMs returns the time of the last change of the settings that the form was made from, or 0 if there were no
// settings.
func seenMs(f url.Values) int64 {
	ms, _ := typedInt(f.Get("seen"))
	return ms
}
