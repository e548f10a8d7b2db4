package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/workspaces"
)

// A list of any length is read in pages, in order, each row once.
func TestNamespacesAndTokensComeInPages(t *testing.T) {
	servers.EachSQL(t, testNamespacesAndTokensComeInPages)
}

func testNamespacesAndTokensComeInPages(t *testing.T) {
	s, db := migrated(t)
	const rows = 2*controlplane.PageMax + 1
	var namespaces, tokens []string
	for i := range rows {
		namespaces = append(namespaces, fmt.Sprintf("('acme', 'ns-%05d', 1)", i))
		tokens = append(tokens, fmt.Sprintf("('bot-%05d', UNHEX(SHA2('%d', 256)), 'viewer', 'ann', 1)", i, i))
	}
	for _, statement := range []string{
		"INSERT INTO ratelimit_namespaces (workspace_id, namespace, updated_at) VALUES ('other', 'ns-00000', 1)," + strings.Join(namespaces, ","),
		"INSERT INTO ratelimit_tokens (name, hash, role, created_by, created_at) VALUES " + strings.Join(tokens, ","),
	} {
		exec(t, db, statement)
	}
	settings := limits.NewSettings(s)
	wantPages(t, rows, "ns-%05d", func(after string) (names []string, more bool, err error) {
		page, more, err := settings.Namespaces(t.Context(), "acme", after)
		for _, n := range page {
			names = append(names, n.Namespace)
		}
		return names, more, err
	})
	ring, err := access.NewTokens(s, "")
	if err != nil {
		t.Fatal(err)
	}
	wantPages(t, rows, "bot-%05d", func(after string) (names []string, more bool, err error) {
		page, more, err := ring.List(t.Context(), after)
		for _, token := range page {
			names = append(names, token.Name)
		}
		return names, more, err
	})
	if n, err := settings.Namespace(t.Context(), "acme", "ns-02000"); err != nil || n.Namespace != "ns-02000" || n.UpdatedAt.IsZero() {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := settings.Namespace(t.Context(), "acme", "none"); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("a namespace without settings: %v", err)
	}
}

func wantPages(t *testing.T, rows int, form string, read func(after string) (names []string, more bool, err error)) {
	t.Helper()
	got, after := 0, ""
	for pages := 1; ; pages++ {
		names, more, err := read(after)
		if err != nil || len(names) > controlplane.PageMax {
			t.Fatalf("page %d has %d rows, %v", pages, len(names), err)
		}
		for _, name := range names {
			if want := fmt.Sprintf(form, got); name != want {
				t.Fatalf("row %d is %s, want %s", got, name, want)
			}
			got++
		}
		if !more {
			if got != rows || pages != 3 {
				t.Errorf("%d rows in %d pages, want %d in 3", got, pages, rows)
			}
			return
		}
		after = names[len(names)-1]
	}
}

// All of a fleet's overrides and namespaces are read in pages, in order, each row once, wherever a page ends.
func TestAllSettingsComeInPages(t *testing.T) { servers.EachSQL(t, testAllSettingsComeInPages) }

func testAllSettingsComeInPages(t *testing.T) {
	s, db := migrated(t)
	var overrides, namespaces []string
	for i := range 2*controlplane.PageMax + 1 {
		overrides = append(overrides, fmt.Sprintf("('w%02d', 'n%02d', 'p%05d', 1, 1)", i/250, i/50, i))
		namespaces = append(namespaces, fmt.Sprintf("('w%02d', 'n%05d', 1)", i/250, i))
	}
	for _, statement := range []string{
		"INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, updated_at) VALUES " + strings.Join(overrides, ","),
		"INSERT INTO ratelimit_namespaces (workspace_id, namespace, updated_at) VALUES " + strings.Join(namespaces, ","),
	} {
		exec(t, db, statement)
	}
	settings := limits.NewSettings(s)
	var lastOverride limits.OverrideName
	wantPages(t, len(overrides), "p%05d", func(string) (names []string, more bool, err error) {
		page, more, err := settings.AllOverrides(t.Context(), nil, lastOverride)
		for _, o := range page {
			names = append(names, o.Pattern)
			lastOverride = limits.OverrideName{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern}
		}
		return names, more, err
	})
	var workspace, namespace string
	wantPages(t, len(namespaces), "n%05d", func(string) (names []string, more bool, err error) {
		page, more, err := settings.AllNamespaces(t.Context(), nil, workspace, namespace)
		for _, n := range page {
			names = append(names, n.Namespace)
			workspace, namespace = n.Workspace, n.Namespace
		}
		return names, more, err
	})
}

// A list of some workspaces' settings omits other workspaces. Their rows neither take room in a page nor cause another
// page.
func TestSettingsOfSomeWorkspacesAreListedAlone(t *testing.T) {
	servers.EachSQL(t, testSettingsOfSomeWorkspacesAreListedAlone)
}

func testSettingsOfSomeWorkspacesAreListedAlone(t *testing.T) {
	s, db := migrated(t)
	for _, statement := range []string{
		"INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, updated_at) VALUES ('a','n','p',1,1),('b','m','p',1,1),('b','n','o',1,1),('b','n','p',1,1),('c','n','p',1,1),('d','n','p',1,1)",
		"INSERT INTO ratelimit_namespaces (workspace_id, namespace, updated_at) VALUES ('a','n',1),('b','m',1),('b','n',1),('c','n',1),('d','n',1)",
	} {
		exec(t, db, statement)
	}
	some, err := workspaces.New("b", "d", "unknown")
	if err != nil {
		t.Fatal(err)
	}
	settings := limits.NewSettings(s)
	for after, want := range map[limits.OverrideName]string{
		{}: "b/m/p b/n/o b/n/p d/n/p", {Workspace: "b", Namespace: "n", Pattern: "o"}: "b/n/p d/n/p",
		{Workspace: "c", Namespace: "z"}: "d/n/p", {Workspace: "d", Namespace: "n", Pattern: "p"}: "",
	} {
		page, more, err := settings.AllOverrides(t.Context(), some, after)
		var got []string
		for _, o := range page {
			got = append(got, o.Workspace+"/"+o.Namespace+"/"+o.Pattern)
		}
		if err != nil || more || strings.Join(got, " ") != want {
			t.Errorf("overrides after %+v: %q, %v, %v; want %q", after, got, more, err, want)
		}
	}
	for after, want := range map[[2]string]string{{}: "b/m b/n d/n", {"b", "m"}: "b/n d/n", {"d", "n"}: ""} {
		page, more, err := settings.AllNamespaces(t.Context(), some, after[0], after[1])
		var got []string
		for _, n := range page {
			got = append(got, n.Workspace+"/"+n.Namespace)
		}
		if err != nil || more || strings.Join(got, " ") != want {
			t.Errorf("namespaces after %q: %q, %v, %v; want %q", after, got, more, err, want)
		}
	}
	page, err := s.AllOverrides(t.Context(), some, limits.OverrideName{}, 3) // the third is not of another workspace
	if err != nil || len(page) != 3 || page[2].Workspace != "b" {
		t.Errorf("%+v, %v", page, err)
	}
}
