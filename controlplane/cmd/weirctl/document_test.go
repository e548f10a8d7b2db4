package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/settings/document"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

// drawer stores settings in memory, as the database does: each change has a later time than the change before it.
type drawer struct {
	limits.SettingsStore
	overrides  map[limits.OverrideName]limits.Override
	namespaces map[[2]string]limits.Namespace
	audit      []audit.Entry
	clock      time.Time
	broken     string // pattern whose change fails
}

func (d *drawer) tick() time.Time {
	d.clock = d.clock.Add(time.Millisecond)
	return d.clock
}

func (d *drawer) Override(_ context.Context, workspace, namespace, pattern string) (*limits.Override, error) {
	o, there := d.overrides[limits.OverrideName{Workspace: workspace, Namespace: namespace, Pattern: pattern}]
	if !there {
		return nil, nil
	}
	return &o, nil
}

func (d *drawer) ChangeOverride(_ context.Context, workspace, namespace, pattern string, change func(*limits.Override) (*limits.Override, audit.Entry, error)) error {
	if pattern == d.broken {
		return fmt.Errorf("%w: the database is gone", controlplane.ErrUnavailable)
	}
	name := limits.OverrideName{Workspace: workspace, Namespace: namespace, Pattern: pattern}
	var before *limits.Override
	if o, there := d.overrides[name]; there {
		before = &o
	}
	after, e, err := change(before)
	if err != nil {
		return err
	}
	if before == nil && window.PatternsAlike(pattern, d.patterns(workspace, namespace)) >= window.PatternsAlikeMax {
		return fmt.Errorf("%w: pattern %s has no room", controlplane.ErrInvalid, pattern)
	}
	d.audit = append(d.audit, e)
	delete(d.overrides, name)
	if after != nil {
		after.UpdatedAt = d.tick()
		d.overrides[name] = *after
	}
	return nil
}

func (d *drawer) patterns(workspace, namespace string) (all []string) {
	for name := range d.overrides {
		if name.Workspace == workspace && name.Namespace == namespace {
			all = append(all, name.Pattern)
		}
	}
	return all
}

func (d *drawer) AllOverrides(_ context.Context, of *workspaces.Set, after limits.OverrideName, rows int) (page []limits.Override, err error) {
	byName := func(a, b limits.OverrideName) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pattern, b.Pattern))
	}
	for _, name := range slices.SortedFunc(maps.Keys(d.overrides), byName) {
		if of.Has(name.Workspace) && byName(name, after) > 0 && len(page) < rows {
			page = append(page, d.overrides[name])
		}
	}
	return page, nil
}

func (d *drawer) ChangeNamespace(_ context.Context, workspace, namespace string, change func(*limits.Namespace) (limits.Namespace, audit.Entry, error)) error {
	name := [2]string{workspace, namespace}
	var before *limits.Namespace
	if n, there := d.namespaces[name]; there {
		before = &n
	}
	after, e, err := change(before)
	if err != nil {
		return err
	}
	after.UpdatedAt = d.tick()
	d.namespaces[name], d.audit = after, append(d.audit, e)
	return nil
}

func (d *drawer) Namespace(_ context.Context, workspace, namespace string) (*limits.Namespace, error) {
	if n, there := d.namespaces[[2]string{workspace, namespace}]; there {
		return &n, nil
	}
	return nil, nil
}

func (d *drawer) AllNamespaces(_ context.Context, of *workspaces.Set, workspace, namespace string, rows int) (page []limits.Namespace, err error) {
	byName := func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
	for _, name := range slices.SortedFunc(maps.Keys(d.namespaces), byName) {
		if of.Has(name[0]) && byName(name, [2]string{workspace, namespace}) > 0 && len(page) < rows {
			page = append(page, d.namespaces[name])
		}
	}
	return page, nil
}

func (d *drawer) put(o limits.Override) {
	o.UpdatedAt = d.tick()
	d.overrides[limits.OverrideName{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern}] = o
}

// newDrawerWorld serves the real API on a drawer. With true it requires the token of the shelf.
func newDrawerWorld(t *testing.T, asks ...bool) (*world, *drawer) {
	t.Helper()
	w := newWorld(t)
	d := &drawer{overrides: map[limits.OverrideName]limits.Override{}, namespaces: map[[2]string]limits.Namespace{}, clock: now}
	server := httptest.NewServer(api.NewHandler(api.Config{
		Settings: limits.NewSettings(d), Tokens: &w.shelf, RequireTokens: len(asks) > 0 && asks[0], Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Tuning: func(context.Context) ([]tunings.RegionTuning, error) { return w.inForce, nil },
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w, d
}

const filled = `kind: weir-settings
version: 1
namespaces:
  - {workspace: "acme", namespace: "api", mode: "exact", outage: "open", node_share: "wait"}
  - {workspace: "beta", namespace: "ai", mode: "estimate", outage: "local", node_share: "flush", shadow: true, estimate: "{\"preset\":\"posthog\"}"}
overrides:
  - {workspace: "acme", namespace: "api", pattern: "user_*", limit: 100, duration_ms: 60000, candidate: 60, shadow: true}
  - {workspace: "zeta", namespace: "web", pattern: "evil", limit: 0}
`

// An export equals the document that was applied, byte for byte. Applying it again changes nothing. Each change has its
// audit entry.
func TestApplyAndExport(t *testing.T) {
	w, d := newDrawerWorld(t)
	file := path(t, filled)
	const plan = `+ namespace acme/api: outage local -> open
+ namespace beta/ai: mode exact -> estimate, node_share wait -> flush, shadow false -> true, estimate - -> {"preset":"posthog"}
+ override acme/api/user_*: limit 100, window 1m, candidate 60, shadow
+ override zeta/web/evil: limit 0 (blocks), window of the request
`
	w.want(t, w.run(t, "apply", "-f", file, "--dry-run"), exitOK, plan+"4 changes to make; --dry-run changes nothing\n")
	if len(d.audit) != 0 {
		t.Errorf("--dry-run: %+v", d.audit)
	}
	w.want(t, w.run(t, "apply", "-f", file, "--reason", "first"), exitOK, plan+"4 of 4 changes applied; "+travels+"\n")
	var actions []string
	for _, e := range d.audit {
		actions = append(actions, e.Action+" "+e.Actor+" "+e.Reason)
	}
	if got := strings.Join(actions, ", "); got != "namespace.set os-user first, namespace.set os-user first, override.set os-user first, override.set os-user first" {
		t.Errorf("audit: %s", got)
	}
	w.want(t, w.run(t, "apply", "-f", file, "--reason", "again"), exitOK, "nothing to change\n")
	w.want(t, w.run(t, "export"), exitOK, filled)
	if len(d.audit) != 4 {
		t.Errorf("%d audit entries", len(d.audit))
	}

	out := filepath.Join(t.TempDir(), "out.yaml")
	w.want(t, w.run(t, "export", "-f", out), exitOK, "")
	if text, err := os.ReadFile(out); err != nil || string(text) != filled || w.stderr.String() != out+": 2 namespaces, 2 overrides\n" {
		t.Errorf("%v %s\n%s", err, text, w.stderr.String())
	}
	if code := w.run(t, "export", "-f", "/does/not/exist/x"); code != exitFailure || !strings.Contains(w.stderr.String(), "-f") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if code := w.run(t, "export", "-o", "json"); code != exitOK {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if read, err := document.Parse(w.stdout.Bytes()); err != nil || len(read.Overrides) != 2 || w.stdout.Bytes()[0] != '{' {
		t.Errorf("%v\n%s", err, w.stdout.String())
	}
}

// A window is applied and exported as the other settings are. Where it is cells it is left out, so that earlier builds
// read a document that does not use the field.
func TestApplyAndExportOfAWindow(t *testing.T) {
	w, d := newDrawerWorld(t)
	const login = `kind: weir-settings
version: 1
namespaces:
  - {workspace: "acme", namespace: "login", mode: "exact", outage: "closed", node_share: "wait", window: "precise"}
`
	w.want(t, w.run(t, "apply", "-f", path(t, login), "--reason", "first"), exitOK,
		"+ namespace acme/login: outage local -> closed, window cells -> precise\n1 of 1 change applied; "+travels+"\n")
	w.want(t, w.run(t, "apply", "-f", path(t, login), "--reason", "again"), exitOK, "nothing to change\n")
	w.want(t, w.run(t, "export"), exitOK, login)
	cells := strings.Replace(login, `, window: "precise"`, "", 1)
	w.want(t, w.run(t, "apply", "-f", path(t, cells), "--reason", "back"), exitOK, "~ namespace acme/login: window precise -> cells\n1 of 1 change applied; "+travels+"\n")
	w.want(t, w.run(t, "export"), exitOK, cells)
	if e := d.audit[len(d.audit)-1]; !strings.Contains(e.Before, `"window":"precise"`) || !strings.Contains(e.After, `"window":"cells"`) {
		t.Errorf("audit: %+v", e)
	}
	code := w.run(t, "apply", "-f", path(t, strings.Replace(login, `mode: "exact"`, `mode: "estimate"`, 1)), "--reason", "x")
	if code == exitOK || !strings.Contains(w.stderr.String(), `namespaces[0].window is "precise" and mode is "estimate"`) {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// A weir-control of an earlier build names no window: its namespaces have cells. It ignores a window, and apply fails.
func TestDocumentsBeforeAnEarlierBuild(t *testing.T) {
	w, d := newDrawerWorld(t)
	d.namespaces[[2]string{"acme", "api"}] = limits.Namespace{Workspace: "acme", Namespace: "api", Mode: "exact", Outage: "open", NodeShare: "wait", UpdatedAt: now}
	d.namespaces[[2]string{"acme", "web"}] = limits.Namespace{Workspace: "acme", Namespace: "web", Mode: "exact", Outage: "local", NodeShare: "wait", UpdatedAt: now}
	const document = `kind: weir-settings
version: 1
namespaces:
  - {workspace: "acme", namespace: "api", mode: "exact", outage: "open", node_share: "wait"}
`
	w.want(t, w.run(t, "export"), exitOK, document)
	w.want(t, w.run(t, "apply", "-f", path(t, document), "--reason", "x"), exitOK, "nothing to change\n")

	older := newWorld(t)
	older.shelf.older = true
	if code := older.run(t, "apply", "-f", path(t, document), "--reason", "x"); code != exitOK {
		t.Errorf("exit %d, %s", code, older.stderr.String())
	}
	precise := strings.Replace(document, "}", `, window: "precise"}`, 1)
	if code := older.run(t, "apply", "-f", path(t, precise), "--reason", "x"); code == exitOK || !strings.Contains(older.stderr.String(), `ignores window "precise"`) {
		t.Errorf("exit %d, %s%s", code, older.stdout.String(), older.stderr.String())
	}
}

// A token that is valid for some workspaces exports and applies the settings of these. Others, and the tuning of the
// fleet, are left out, and --prune does not touch them.
func TestApplyAndExportOfSomeWorkspaces(t *testing.T) {
	w, d := newDrawerWorld(t, true)
	w.shelf.secret = "weir_s3cret"
	t.Setenv("WEIR_TOKEN", "weir_s3cret")
	if code := w.run(t, "apply", "-f", path(t, filled), "--reason", "all"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	valid, err := workspaces.New("acme", "new")
	if err != nil {
		t.Fatal(err)
	}
	w.shelf.valid, d.audit = valid, nil
	const acme = `kind: weir-settings
version: 1
namespaces:
  - {workspace: "acme", namespace: "api", mode: "exact", outage: "open", node_share: "wait"}
overrides:
  - {workspace: "acme", namespace: "api", pattern: "user_*", limit: 100, duration_ms: 60000, candidate: 60, shadow: true}
`
	w.want(t, w.run(t, "export"), exitOK, acme)
	if !strings.Contains(w.stderr.String(), "the token is limited to some workspaces") {
		t.Errorf("stderr %q", w.stderr.String())
	}
	w.want(t, w.run(t, "apply", "-f", path(t, filled), "--reason", "again"), exitOK, "nothing to change\n")
	if !strings.Contains(w.stderr.String(), "2 settings of other workspaces in the document: left out") {
		t.Errorf("stderr %q", w.stderr.String())
	}
	empty := "kind: weir-settings\nversion: 1\noverrides:\n  - {workspace: \"new\", namespace: \"api\", pattern: \"u\", limit: 5}\n"
	if code := w.run(t, "apply", "-f", path(t, empty), "--prune", "--reason", "x", "--yes"); code != exitOK || len(d.audit) != 3 || len(d.overrides) != 2 {
		t.Errorf("exit %d, %s%s: %+v", code, w.stdout.String(), w.stderr.String(), d.audit)
	}
	for _, command := range [][]string{{"override", "list", "zeta", "web"}, {"override", "list", "nobody", "web"}, {"fleet"}, {"rollout", "status"}} {
		if code := w.run(t, command...); code != exitFailure || !strings.Contains(w.stderr.String(), "the token is limited to some workspaces") {
			t.Errorf("%q: exit %d, %s%s", command, code, w.stdout.String(), w.stderr.String())
		}
	}
}

// Without --prune nothing is deleted. With --prune overrides that the document lacks are deleted, and such namespaces
// get their defaults.
func TestApplyPrunes(t *testing.T) {
	w, d := newDrawerWorld(t)
	w.run(t, "apply", "-f", path(t, filled), "--reason", "first")
	document := path(t, `kind: weir-settings
version: 1
overrides:
  - {workspace: "acme", namespace: "api", pattern: "user_*", limit: 50, duration_ms: 60000}
`)
	const changed = "~ override acme/api/user_*: limit 100 -> 50, candidate 60 -> 0, shadow true -> false\n"
	w.want(t, w.run(t, "apply", "-f", document, "--reason", "less"), exitOK,
		changed+"3 settings not in the document stay as they are; --prune deletes them\n1 of 1 change applied; "+travels+"\n")
	if len(d.overrides) != 2 || len(d.namespaces) != 2 {
		t.Errorf("%+v %+v", d.overrides, d.namespaces)
	}
	w.want(t, w.run(t, "apply", "-f", document, "--prune", "--yes", "--reason", "clean"), exitOK, `
~ namespace acme/api: outage open -> local
~ namespace beta/ai: mode estimate -> exact, node_share flush -> wait, shadow true -> false, estimate {"preset":"posthog"} -> -
- override zeta/web/evil: limit 0 (blocks), window of the request
3 of 3 changes applied; `+travels+"\n")
	w.want(t, w.run(t, "apply", "-f", document, "--prune", "--yes", "--reason", "clean"), exitOK, "nothing to change\n")
	w.want(t, w.run(t, "export"), exitOK, `
kind: weir-settings
version: 1
overrides:
  - {workspace: "acme", namespace: "api", pattern: "user_*", limit: 50, duration_ms: 60000}
`)
}

// At the bound of patterns with several '*', each new pattern replaces a pattern that is deleted. All other deletions
// come last.
func TestApplyReplacesPatternsAtTheirBound(t *testing.T) {
	w, d := newDrawerWorld(t)
	document := "kind: weir-settings\nversion: 1\noverrides:\n"
	for i := range window.PatternsAlikeMax {
		d.put(limits.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprintf("a*b*%02d", i), Limit: 1})
		document += fmt.Sprintf("  - {workspace: \"acme\", namespace: \"api\", pattern: \"a*c*%02d\", limit: 1}\n", i)
	}
	d.put(limits.Override{Workspace: "acme", Namespace: "api", Pattern: "b*b*", Limit: 1})
	if code := w.run(t, "apply", "-f", path(t, document), "--prune", "--yes", "--reason", "x"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	w.want(t, w.run(t, "export"), exitOK, document)
	var actions []string
	for _, e := range d.audit {
		actions = append(actions, e.Action)
	}
	want := append(slices.Repeat([]string{"override.delete", "override.set"}, window.PatternsAlikeMax), "override.delete")
	if !slices.Equal(actions, want) {
		t.Errorf("%q", actions)
	}
}

// --timeout bounds all calls of export and apply.
func TestTimeoutOfDocuments(t *testing.T) {
	w, d := newDrawerWorld(t)
	for _, args := range [][]string{{"export"}, {"apply", "-f", path(t, filled), "--reason", "x"}} {
		code := w.run(t, append(args, "--timeout", "1ns")...)
		if code != exitUnavailable || !strings.Contains(w.stderr.String(), "no answer within --timeout") || len(d.audit) > 0 {
			t.Errorf("%s: exit %d, %s", args[0], code, w.stderr.String())
		}
	}
}

// A document of this build would lose a field of a newer build, so the export is an error.
func TestExportRefusesTuningOfANewerBuild(t *testing.T) {
	w, _ := newDrawerWorld(t)
	newer := strings.TrimSuffix(controltest.Document(), "}") + `,"of_a_newer_build":7}`
	for _, region := range []string{"", "eu"} {
		w.inForce = []tunings.RegionTuning{{Region: region, Version: 3, Document: newer}}
		code := w.run(t, "export")
		if said := w.stderr.String(); code != exitFailure || w.stdout.Len() > 0 || !strings.Contains(said, "of_a_newer_build") ||
			!strings.Contains(said, "tuning of "+plan.OrFleet(region)) || !strings.Contains(said, "Upgrade weirctl") {
			t.Errorf("exit %d, %s%s", code, w.stdout.String(), said)
		}
	}
}

// A failure in the middle prints which changes were made and which were not. The next run makes the rest.
func TestApplyFailsInTheMiddle(t *testing.T) {
	w, d := newDrawerWorld(t)
	d.broken = "user_*"
	document := path(t, filled)
	code := w.run(t, "apply", "-f", document, "--reason", "x")
	for _, want := range []string{
		"not applied: + override zeta/web/evil: limit 0 (blocks), window of the request\n",
		"weirctl: 2 of 4 changes are applied, and the next one failed: + override acme/api/user_*: limit 100, window 1m, candidate 60, shadow: ", "the database is gone\n",
		"Correct the cause and run it again",
	} {
		if !strings.Contains(w.stderr.String(), want) {
			t.Errorf("stderr does not have %q:\n%s", want, w.stderr.String())
		}
	}
	if code != exitUnavailable || len(d.overrides) != 0 || len(d.namespaces) != 2 || !strings.HasSuffix(w.stdout.String(), "2 of 4 changes applied; "+travels+"\n") {
		t.Errorf("exit %d, %+v %s", code, d.overrides, w.stdout.String())
	}
	code = w.run(t, "apply", "-f", document, "--reason", "x", "-o", "json")
	var answer applied
	if err := json.Unmarshal(w.stdout.Bytes(), &answer); err != nil || code != exitUnavailable || len(answer.Changes) != 2 || answer.Changes[0].Applied || answer.Changes[0].Action != "add" {
		t.Errorf("exit %d, %v %s", code, err, w.stdout.String())
	}
	d.broken = ""
	if code := w.run(t, "apply", "-f", document, "--reason", "x"); code != exitOK || len(d.overrides) != 2 {
		t.Errorf("exit %d, %+v", code, d.overrides)
	}
}

// Somebody else changes an override between the look and the change: nothing of theirs is lost.
func TestApplyDoesNotOverwriteWhatItHasNotSeen(t *testing.T) {
	w, d := newDrawerWorld(t)
	seen := &limits.Override{Workspace: "acme", Namespace: "api", Pattern: "u", Limit: 1}
	const none = "kind: weir-settings\nversion: 1\n"
	const two = none + "overrides: [{workspace: acme, namespace: api, pattern: u, limit: 2}, " +
		"{workspace: acme, namespace: api, pattern: v, limit: 2}]"
	for _, text := range []string{two, none} {
		applyAfterAChange(t, w, d, seen, text)
	}
}

// applyAfterAChange prunes by a document, and finds that an override was changed after it looked.
func applyAfterAChange(t *testing.T, w *world, d *drawer, seen *limits.Override, text string) {
	t.Helper()
	d.put(*seen)
	wanted, err := document.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := &call{
		terminal: terminal{stdout: &w.stdout, stderr: &w.stderr}, ctx: t.Context(), patient: t.Context(),
		Clients: apiclient.New(http.DefaultClient, w.url),
	}
	all, err := c.stored()
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Of(wanted, all, true)
	seen.Limit = 7
	d.put(*seen)
	done, err := applyPlan(c, p, "ann", "x")
	if err == nil || done != 0 || !strings.Contains(err.Error(), "was changed at") || d.overrides[limits.OverrideName{Workspace: "acme", Namespace: "api", Pattern: "u"}].Limit != 7 {
		t.Errorf("%d done, %v", done, err)
	}
}

// apply only compares tuning. It prints the rollout that makes the difference, which weirctl accepts as a command.
func TestApplyComparesTuning(t *testing.T) {
	w, _ := newDrawerWorld(t)
	w.inForce = []tunings.RegionTuning{{Version: 3, Document: controltest.Document()}, {Region: "eu", Version: 4, Document: controltest.Document("floor=0.2")}}
	if code := w.run(t, "export"); code != exitOK {
		t.Fatal(w.stderr.String())
	}
	exported := w.stdout.String()
	w.want(t, w.run(t, "apply", "-f", path(t, exported), "--reason", "x"), exitOK, "nothing to change\n")
	w.inForce = []tunings.RegionTuning{{Version: 5, Document: controltest.Document("jitter=0.3", "step=0.02")}}
	w.want(t, w.run(t, "apply", "-f", path(t, exported), "--reason", "x"), exitOK, `
! tuning of fleet: step 0.02 -> 0.01, jitter 0.3 -> 0.2; apply leaves tuning as it is, and this rolls it out:
  weirctl rollout start --from fleet --set step=0.01 --set jitter=0.2 --stage all
! tuning of eu: floor 0.1 -> 0.2, step 0.02 -> 0.01, jitter 0.3 -> 0.2; apply leaves tuning as it is, and this rolls it out:
  weirctl rollout start --from fleet --set floor=0.2 --set step=0.01 --set jitter=0.2 --stage eu
nothing to change
`)
	for line := range strings.Lines(w.stdout.String()) {
		if words := strings.Fields(line); words[0] == "weirctl" {
			if _, err := newParser(t).Parse(append(words[1:], "--reason", "x")); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if code := w.run(t, "apply", "-f", path(t, exported), "--dry-run", "-o", "json"); code != exitOK || !strings.Contains(w.stdout.String(), `"field": "step"`) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
	w.want(t, w.run(t, "apply", "-f", path(t, "kind: weir-settings\nversion: 1\n"), "--reason", "x"), exitOK, "nothing to change\n")
}

// A document that cannot be applied is rejected before any call to the API.
func TestApplyRefuses(t *testing.T) {
	w, _ := newDrawerWorld(t)
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"-f", path(t, filled)}, "--reason is missing"},
		{[]string{"-f", path(t, filled+"x: 1\n"), "--reason", "x"}, "line 9: x is not a known field"},
		{[]string{"-f", path(t, "#"+strings.Repeat(" ", document.BytesMax)), "--reason", "x"}, "bytes long (at most 16777216)"},
		{[]string{"-f", "/does/not/exist", "--reason", "x"}, "/does/not/exist"},
		{[]string{"--reason", "x"}, "--file"},
	} {
		if code := w.run(t, append([]string{"apply"}, tc.args...)...); code != exitUsage || !strings.Contains(w.stderr.String(), tc.says) {
			t.Errorf("%.80q: exit %d, %s", tc.args, code, w.stderr.String())
		}
	}
}

// A list longer than a page is exported whole; a server that repeats a page does not keep weirctl forever.
func TestExportOfManyPages(t *testing.T) {
	w, d := newDrawerWorld(t)
	for i := range 2*controlplane.PageMax + 1 {
		d.put(limits.Override{Workspace: "acme", Namespace: fmt.Sprintf("n%d", i%3), Pattern: fmt.Sprintf("u%05d", i), Limit: 1})
	}
	if code := w.run(t, "export"); code != exitOK || strings.Count(w.stdout.String(), "\n  - ") != 2*controlplane.PageMax+1 {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	d.overrides = map[limits.OverrideName]limits.Override{}
	d.put(limits.Override{Workspace: "\xff", Namespace: "n", Pattern: "a", Limit: 1})
	d.put(limits.Override{Workspace: "\xff", Namespace: "n", Pattern: "\xffb", Limit: 1})
	d.put(limits.Override{Workspace: "\xff", Namespace: "n", Pattern: "\xfeb", Limit: 1})
	if code := w.run(t, "export"); code != exitFailure || !strings.Contains(w.stderr.String(), "a name is not UTF-8") {
		t.Errorf("exit %d, %s%s", code, w.stdout.String(), w.stderr.String())
	}
}
