package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A workspace of many namespaces is shown in pages, and each namespace has its page,
// wherever in the list it is.
func TestNamespacesComeInPages(t *testing.T) {
	w := start(t, true)
	for i := range 2 * namespacesShown {
		w.namespaces = append(w.namespaces, fmt.Sprintf("ns-%04d", i))
	}
	b := w.visit()
	first := b.get("/console/limits?workspace=acme")
	last := fmt.Sprintf("ns-%04d", namespacesShown-2)
	if first.status != http.StatusOK || strings.Count(first.body, "<li class=\"card\">") != namespacesShown || !strings.Contains(first.body, "after="+last) {
		t.Errorf("%d, %d namespaces", first.status, strings.Count(first.body, "<li class=\"card\">"))
	}
	if second := b.get("/console/limits?workspace=acme&after=" + last); !strings.Contains(second.body, "First page") || !strings.Contains(second.body, fmt.Sprintf(">ns-%04d<", namespacesShown-1)) || strings.Contains(second.body, ">api<") {
		t.Error("the second page is not what comes after the first")
	}
	if end := b.get("/console/limits?workspace=acme&after=zzz"); !strings.Contains(end.body, "That was the last page") {
		t.Error("an empty page does not say so")
	}
}

// The page of a namespace leads to its keys and to its changes, whatever characters are in the names.
func TestANamespaceLeadsToItsKeysAndChanges(t *testing.T) {
	b := start(t, true).visit()
	page := b.get("/console/limits/namespace?workspace=a%26b&namespace=%22n%2B").body
	for _, want := range []string{`<a href="/console/keys?workspace=a%26b&amp;namespace=%22n%2b">Its keys</a>`,
		`<a href="/console/audit?workspace=a%26b&amp;namespace=%22n%2b">its changes</a>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, path := range []string{"/console/keys?workspace=acme&namespace=api", "/console/audit?workspace=acme&namespace=api"} {
		if got := b.get(path); got.status != http.StatusOK {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}
