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
	namesShown       = 200 // of a page, and offered while people type
	overridePagesMax = 4   // of 1,000 overrides, each from the next namespace on
)

// patternsEnd sorts after every pattern: it is the last code point, in more bytes than a pattern has.
var patternsEnd = strings.Repeat("\U0010FFFF", 64)

// names are the namespaces that operators have set something for, or in which nodes report busy or denied keys, by
// workspace and name.
type names struct {
	All     []name
	More    bool   // there may be others
	Problem string // why some are missing
}

// name is a namespace, and how it is known.
type name struct {
	Workspace, Namespace      string
	Settings, Overrides, Seen bool
}

// Known says how the namespace is known.
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

// Limits is the address of the namespace's limits.
func (n name) Limits() string { return limitsOf(n.Workspace, n.Namespace) }

// Keys is the address of the namespace's keys.
func (n name) Keys() string { return "/console/keys?" + spaceOf(n.Workspace, n.Namespace).Encode() }

// spaceOf is what an address names a namespace by.
func spaceOf(workspace, namespace string) url.Values {
	return url.Values{"workspace": {workspace}, "namespace": {namespace}}
}

func limitsOf(workspace, namespace string) string {
	return "/console/limits/namespace?" + spaceOf(workspace, namespace).Encode()
}

// listNames looks in what operators have set and in what nodes have seen, which is a part of it where there is a
// problem. Each look is bounded.
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

// seenKeys are the busiest and the most denied keys of all workspaces, and why some are missing.
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

// Shown are the first few.
func (n names) Shown() []name { return n.All[:min(len(n.All), namesShown)] }

// Left tells whether there are others than those that are shown.
func (n names) Left() bool { return n.More || len(n.All) > namesShown }

// Of are the namespaces of a workspace, or all.
func (n names) Of(workspace string) names {
	if workspace != "" {
		n.All = slices.DeleteFunc(slices.Clone(n.All), func(one name) bool { return one.Workspace != workspace })
	}
	return n
}

// Unset are the namespaces without settings of their own.
func (n names) Unset() names {
	n.All = slices.DeleteFunc(slices.Clone(n.All), func(one name) bool { return one.Settings })
	return n
}

// Workspaces are offered while people type.
func (n names) Workspaces() []string {
	return distinct(n.All, func(n name) string { return n.Workspace })
}

// Namespaces are offered while people type.
func (n names) Namespaces() []string {
	return distinct(n.All, func(n name) string { return n.Namespace })
}

// distinct are the first few texts, in order and each once.
func distinct[T any](list []T, text func(T) string) []string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = text(one)
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	return texts[:min(len(texts), namesShown)]
}

// byScript tells whether a page is fetched to refresh its live parts, of which names are none.
func byScript(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Dest") == "empty" }
