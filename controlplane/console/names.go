package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

const (
	namesShown       = 200 // on a page and as suggestions
	overridePagesMax = 4   // of 1,000 overrides; each page begins at the next namespace
)

// patternsEnd sorts after every pattern: it repeats the last code point and has more bytes than a pattern can have.
var patternsEnd = strings.Repeat("\U0010FFFF", 64)

// names are the namespaces that have settings or overrides, or in which nodes report busy or denied keys. They are
// sorted by workspace and name.
type names struct {
	All     []name
	More    bool   // there may be more namespaces
	Problem string // why some namespaces are missing
}

// name is a namespace with the sources that list it.
type name struct {
	Workspace, Namespace      string
	Settings, Overrides, Seen bool
}

// Known lists the sources of the name, for example "settings, overrides".
func (n name) Known() string {
	var by []string
	if n.Settings {
		by = append(by, "settings")
	}
	if n.Overrides {
		by = append(by, "overrides")
	}
	if n.Seen {
		by = append(by, "busy or denied keys")
	}
	return strings.Join(by, ", ")
}

// Limits returns the address of the namespace's limits.
func (n name) Limits() string { return limitsOf(n.Workspace, n.Namespace) }

// Keys returns the address of the namespace's keys.
func (n name) Keys() string { return "/console/keys?" + spaceOf(n.Workspace, n.Namespace).Encode() }

// spaceOf returns the address parameters of a namespace.
func spaceOf(workspace, namespace string) url.Values {
	return url.Values{"workspace": {workspace}, "namespace": {namespace}}
}

func limitsOf(workspace, namespace string) string {
	return "/console/limits/namespace?" + spaceOf(workspace, namespace).Encode()
}

// listNames returns the namespaces of settings, overrides and reported keys. If problem is not empty, the list of
// reported keys is incomplete. The number of reads is bounded.
func (c *Console) listNames(v *viewer, seen []*controlv1.TopKey, problem string) names {
	list := names{Problem: problem}
	found := make(map[[2]string]*name)
	of := func(workspace, namespace string) *name {
		key := [2]string{workspace, namespace}
		if found[key] == nil {
			found[key] = &name{Workspace: workspace, Namespace: namespace}
		}
		return found[key]
	}
	for _, k := range seen {
		of(k.GetWorkspace(), k.GetNamespace()).Seen = true
	}
	set, err := apiclient.Ask(v.ctx, c.backend.Settings.ListAllNamespaces, &controlv1.ListAllNamespacesRequest{})
	if err != nil {
		list.Problem = apiclient.Words(err)
	}
	for _, n := range set.GetNamespaces() {
		of(n.GetWorkspace(), n.GetNamespace()).Settings = true
	}
	list.More = set.GetHasMore()
	after := &controlv1.ListAllOverridesRequest{}
	for range overridePagesMax {
		page, err := apiclient.Ask(v.ctx, c.backend.Settings.ListAllOverrides, after)
		if err != nil {
			list.Problem = apiclient.Words(err)
			break
		}
		for _, o := range page.GetOverrides() {
			of(o.GetWorkspace(), o.GetNamespace()).Overrides = true
		}
		if !page.GetHasMore() {
			after = nil
			break
		}
		last := page.GetOverrides()[len(page.GetOverrides())-1]
		after = &controlv1.ListAllOverridesRequest{AfterWorkspace: last.GetWorkspace(),
			AfterNamespace: last.GetNamespace(), AfterPattern: patternsEnd}
	}
	list.More = list.More || after != nil && list.Problem == ""
	for _, n := range found {
		list.All = append(list.All, *n)
	}
	slices.SortFunc(list.All, func(a, b name) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace))
	})
	return list
}

// seenKeys returns the busiest and the most denied keys of all workspaces, and the reason if some are missing.
func (c *Console) seenKeys(v *viewer) (keys []*controlv1.TopKey, problem string) {
	return keysOf(c.rank(v, keyView{}, controlv1.TopBy_TOP_BY_HOT), c.rank(v, keyView{}, controlv1.TopBy_TOP_BY_DENIED))
}

func keysOf(rankings ...ranking) (keys []*controlv1.TopKey, problem string) {
	for _, r := range rankings {
		problem = cmp.Or(problem, r.Problem)
		for _, k := range r.Keys {
			keys = append(keys, k.TopKey)
		}
	}
	return keys, problem
}

// Shown returns the first namesShown namespaces.
func (n names) Shown() []name { return n.All[:min(len(n.All), namesShown)] }

// Left reports whether there are more namespaces than the page shows.
func (n names) Left() bool { return n.More || len(n.All) > namesShown }

// Of returns the namespaces of a workspace, or all namespaces if workspace is empty.
func (n names) Of(workspace string) names {
	if workspace != "" {
		n.All = slices.DeleteFunc(slices.Clone(n.All), func(one name) bool { return one.Workspace != workspace })
	}
	return n
}

// Unset returns the namespaces without settings.
func (n names) Unset() names {
	n.All = slices.DeleteFunc(slices.Clone(n.All), func(one name) bool { return one.Settings })
	return n
}

// Workspaces returns suggestions for the input field.
func (n names) Workspaces() []string {
	return distinct(n.All, func(n name) string { return n.Workspace })
}

// Namespaces returns suggestions for the input field.
func (n names) Namespaces() []string {
	return distinct(n.All, func(n name) string { return n.Namespace })
}

// distinct returns the first namesShown texts, sorted and without duplicates.
func distinct[T any](list []T, text func(T) string) []string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = text(one)
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	return texts[:min(len(texts), namesShown)]
}

// byScript reports whether the module fetches the page to refresh its live parts. Lists of names are not live.
func byScript(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Dest") == "empty" }
