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
