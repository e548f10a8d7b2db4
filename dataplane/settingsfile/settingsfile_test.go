package settingsfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/settingsfile"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/settings/document"
	"github.com/weirhq/weir/shared/tuning"
)

// limiter makes a limiter with the settings of a source in force.
func limiter(t *testing.T, source store.Settings, origin store.Origin) *dataplane.Limiter {
	t.Helper()
	l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", RegionNodes: 1, Settings: source, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func start(t *testing.T, l *dataplane.Limiter) {
	t.Helper()
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func ask(l *dataplane.Limiter, namespace string, cost int64) dataplane.Decision {
	return l.Allow(context.Background(), dataplane.Request{Workspace: "acme", Namespace: namespace, Identifier: "k", Limit: 10,
		Duration: time.Hour, Cost: cost})
}

// written puts a text into a new file.
func written(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, text)
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const head = "kind: weir-settings\nversion: 1\n"

// limited is a file with a limit for everybody.
func limited(limit string) string {
	return head + "overrides:\n  - {workspace: acme, namespace: api, pattern: \"*\", limit: " + limit + "}\n"
}

func opened(t *testing.T, path string) *settingsfile.File {
	t.Helper()
	f, err := settingsfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAnOverrideOfAFileAppliesFromTheFirstRequestOn(t *testing.T) {
	l := limiter(t, opened(t, written(t, limited("3"))), nil)
	if d := ask(l, "api", 4); d.Allowed || d.Limit != 3 || d.Override != "*" {
		t.Errorf("%+v", d)
	}
	if d := ask(l, "other", 4); !d.Allowed || d.Limit != 10 || d.Override != "" {
		t.Errorf("another namespace: %+v", d)
	}
}

func TestAnEditedFileAppliesWithinASettingsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := written(t, limited("3"))
		l := limiter(t, opened(t, path), nil)
		start(t, l)
		write(t, path, limited("5"))
		interval := tuning.Default().SettingsEvery()
		time.Sleep(interval + time.Duration(float64(interval)*tuning.Default().Jitter))
		if d := ask(l, "api", 1); d.Limit != 5 {
			t.Errorf("%+v", d)
		}
	})
}

// An invalid file is an error at each read until it is valid again. Until then the settings in force stay.
func TestAnInvalidFileKeepsTheSettingsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := written(t, limited("3"))
		l := limiter(t, opened(t, path), nil)
		start(t, l)
		write(t, path, limited("-1"))
		want := path + ": settings document: line 4: overrides[0].limit is -1 (0 to "
		for range 3 {
			time.Sleep(10 * time.Second)
			h := l.Health()
			if !strings.Contains(h.SettingsProblem, want) || h.SettingsErrors == 0 {
				t.Errorf("health reports %q, %d errors; want %s", h.SettingsProblem, h.SettingsErrors, want)
			}
			if err := l.RefreshSettings(t.Context()); !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			if d := ask(l, "api", 1); d.Limit != 3 {
				t.Errorf("%+v", d)
			}
		}
		write(t, path, limited("7"))
		time.Sleep(10 * time.Second)
		if d, h := ask(l, "api", 1), l.Health(); d.Limit != 7 || h.SettingsProblem != "" {
			t.Errorf("%+v, %q", d, h.SettingsProblem)
		}
	})
}

func TestAFileThatIsRemovedKeepsTheSettingsInForce(t *testing.T) {
	path := written(t, limited("3"))
	f := opened(t, path)
	l := limiter(t, f, nil)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := l.RefreshSettings(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if d := ask(l, "api", 1); d.Limit != 3 {
		t.Errorf("%+v", d)
	}
	write(t, path, limited("3"))
	if err := l.RefreshSettings(t.Context()); err != nil {
		t.Error(err)
	}
	// A file that was invalid when it was removed is invalid when it is back.
	write(t, path, limited("-1"))
	if err := l.RefreshSettings(t.Context()); !errors.Is(err, settings.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := l.RefreshSettings(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	write(t, path, limited("-1"))
	if err := l.RefreshSettings(t.Context()); !errors.Is(err, settings.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestOpenRefusesAFileThatIsMissingOrInvalid(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "limits.yaml: settings document: it is empty",
		head + "x: 1":      "limits.yaml: settings document: line 3: x is not a known field",
		limited("one"):     "line 4: overrides[0].limit",
		`{"kind":"other"}`: "limits.yaml: settings document: ",
	} {
		if f, err := settingsfile.Open(written(t, text)); f != nil || !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := settingsfile.Open(filepath.Join(t.TempDir(), "limits.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	folder := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		write(t, filepath.Join(folder, name), limited("3"))
	}
	if _, err := settingsfile.Open(folder); err == nil || !strings.Contains(err.Error(), "read settings from 2 files (want 1)") {
		t.Errorf("%v", err)
	}
}

// A file's bound is the bound of a document.
func TestAFileMayBeAsLongAsADocument(t *testing.T) {
	text := limited("3")
	text += "#" + strings.Repeat(" ", document.BytesMax-len(text)-1)
	opened(t, written(t, text))
	if _, err := settingsfile.Open(written(t, text+" ")); err == nil || !strings.Contains(err.Error(), "longer than 16777216 bytes") {
		t.Errorf("%v", err)
	}
}

// In shadow mode requests pass, and the answer reports the denial. Their cost is not counted.
func TestAShadowNamespacePassesAndReportsTheDenial(t *testing.T) {
	source, err := settingsfile.New(settings.Document{Namespaces: []settings.Namespace{
		{Workspace: "acme", Namespace: "api", Shadow: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, source, nil)
	for range 3 {
		if d := ask(l, "api", 4); !d.Allowed || d.Shadowed != (d.Current > 10) {
			t.Errorf("%+v", d)
		}
	}
	if d := ask(l, "other", 11); d.Allowed {
		t.Errorf("another namespace: %+v", d)
	}
	if h := l.Health(); h.Shadowed != 1 {
		t.Errorf("%d decisions are shadowed, want 1", h.Shadowed)
	}
}

// While the origin does not answer, each namespace decides by its own policy.
func TestAnOutagePolicyAppliesWhileTheOriginIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, err := settingsfile.New(settings.Document{Namespaces: []settings.Namespace{
			{Workspace: "acme", Namespace: "login", Outage: "closed"},
			{Workspace: "acme", Namespace: "search", Outage: "open"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		l := limiter(t, source, origin)
		if d := ask(l, "login", 1); !d.Allowed || d.Source != dataplane.SourceOrigin {
			t.Errorf("with the origin: %+v", d)
		}
		time.Sleep(time.Minute) // the count is stale
		origin.Faults.Fail(errors.New("the server is down"))
		for namespace, want := range map[string]struct {
			allowed bool
			source  dataplane.Source
		}{
			"login": {false, dataplane.SourceDegradedClosed}, "search": {true, dataplane.SourceDegradedOpen},
			"other": {true, dataplane.SourceDegraded},
		} {
			if d := ask(l, namespace, 1); d.Allowed != want.allowed || d.Source != want.source || d.Err != nil {
				t.Errorf("%s: %+v", namespace, d)
			}
		}
		if d := ask(l, "login", 1); d.RetryAfter <= 0 {
			t.Errorf("a denial without RetryAfter: %+v", d)
		}
		origin.Faults.Fail(nil)
		if err := l.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// All that a document sets reaches decisions: tuning of the region, mode, outage policy, shadow, candidates, durations.
func TestAllOfADocumentIsInForce(t *testing.T) {
	fleet, eu := tuning.Default(), tuning.Default()
	fleet.Floor, eu.Floor = 0.2, 0.3
	source, err := settingsfile.New(settings.Document{
		Tuning: &fleet, RegionTuning: map[string]tuning.Tuning{"eu": eu},
		Namespaces: []settings.Namespace{
			{Workspace: "acme", Namespace: "try", Mode: "exact", Outage: "closed", NodeShare: "wait", Window: "precise", Shadow: true},
			{Workspace: "acme", Namespace: "ai", Mode: "estimate", Outage: "local", NodeShare: "flush", Window: "cells", Estimate: `{"preset":"posthog"}`},
		},
		Overrides: []settings.Override{{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 8, DurationMs: 2_000, Candidate: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, source, nil)
	if d := ask(l, "try", 11); !d.Allowed || !d.Shadowed {
		t.Errorf("shadow: %+v", d)
	}
	if d := ask(l, "api", 2); d.Limit != 8 || d.Duration != 2*time.Second || !d.CandidateDenied {
		t.Errorf("override: %+v", d)
	}
	if d := ask(l, "ai", 10); d.Allowed {
		t.Errorf("the preset denies what reaches the limit: %+v", d)
	}
	if floor := l.RelayTuning().Floor; floor != 0.3 {
		t.Errorf("the region's floor is %v", floor)
	}
	rows, err := source.Settings(t.Context(), "us")
	if err != nil || rows.Namespaces[0].Outage != "closed" || rows.Namespaces[0].NodeShare != "wait" ||
		rows.Namespaces[0].Window != store.WindowPrecise || rows.Namespaces[1].Window != store.WindowCells ||
		!strings.Contains(string(rows.TuningDocument), `"floor":0.2`) {
		t.Errorf("%+v, %v", rows, err)
	}

	eu.Floor = 0.4
	if err := source.Set(settings.Document{RegionTuning: map[string]tuning.Tuning{"eu": eu}}); err != nil {
		t.Fatal(err)
	}
	if err := l.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if floor := l.RelayTuning().Floor; floor != 0.4 {
		t.Errorf("after a change of the tuning the region's floor is %v", floor)
	}
	if err := source.Set(settings.Document{}); err != nil {
		t.Fatal(err)
	}
	if err := l.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if floor := l.RelayTuning().Floor; floor != tuning.Default().Floor {
		t.Errorf("without tuning the floor is %v", floor)
	}
	if d := ask(l, "try", 11); d.Allowed {
		t.Errorf("without settings: %+v", d)
	}
}

func TestSetRefusesAnInvalidDocumentAndKeepsTheSettings(t *testing.T) {
	source, err := settingsfile.New(settings.Document{Overrides: []settings.Override{
		{Workspace: "acme", Namespace: "api", Pattern: "*", Limit: 3},
	}})
	if err != nil {
		t.Fatal(err)
	}
	wrong := settings.Document{Namespaces: []settings.Namespace{{Workspace: "acme", Namespace: "api", Outage: "shut"}}}
	const want = `namespaces[0].outage is "shut"`
	if err := source.Set(wrong); !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := settingsfile.New(wrong); !errors.Is(err, settings.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if d := ask(limiter(t, source, nil), "api", 1); d.Limit != 3 {
		t.Errorf("%+v", d)
	}
}

// A network of a file applies to the addresses in it. A network that is not in its only form is refused.
func TestANetworkOfADocument(t *testing.T) {
	document := func(pattern string) settings.Document {
		return settings.Document{Overrides: []settings.Override{{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: 3}}}
	}
	source, err := settingsfile.New(document("203.0.113.0/24"))
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, source, nil)
	d := l.Allow(t.Context(), dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "203.0.113.7", Limit: 9, Duration: time.Minute})
	if d.Limit != 3 || d.Override != "203.0.113.0/24" {
		t.Errorf("%+v", d)
	}
	const want = `overrides[0].pattern is "203.0.113.7/24" (this network is written "203.0.113.0/24")`
	if err := source.Set(document("203.0.113.7/24")); !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A caller may change a document after it has set it: the settings in force are a copy.
func TestSetKeepsACopy(t *testing.T) {
	fleet := tuning.Default()
	fleet.Floor = 0.2
	d := settings.Document{
		Tuning: &fleet, RegionTuning: map[string]tuning.Tuning{},
		Namespaces: []settings.Namespace{{Workspace: "acme", Namespace: "api"}},
		Overrides:  []settings.Override{{Workspace: "acme", Namespace: "api", Pattern: "*", Limit: 3}},
	}
	source, err := settingsfile.New(d)
	if err != nil {
		t.Fatal(err)
	}
	if d.Namespaces[0].Mode != "" {
		t.Errorf("Set has changed the caller's document: %+v", d)
	}
	fleet.Floor, d.RegionTuning["eu"] = 0.5, tuning.Default()
	d.Namespaces[0].Shadow, d.Overrides[0].Limit = true, 100
	l := limiter(t, source, nil)
	if d := ask(l, "api", 4); d.Allowed || d.Limit != 3 || l.RelayTuning().Floor != 0.2 {
		t.Errorf("%+v, floor %v", d, l.RelayTuning().Floor)
	}
}

// Rows have a version, so that a limiter does not compile the same settings again.
func TestRowsHaveTheSameVersionUntilTheyChange(t *testing.T) {
	path := written(t, limited("3"))
	f := opened(t, path)
	version := func(region string) string {
		rows, err := f.Settings(t.Context(), region)
		if err != nil || rows.Version == "" {
			t.Errorf("%+v, %v", rows, err)
		}
		return rows.Version
	}
	first := version("eu")
	if again := version("eu"); again != first {
		t.Errorf("version %q of the same settings, want %q", again, first)
	}
	if us := version("us"); us == first { // regions may have tunings of their own
		t.Errorf("another region has the same version %q", us)
	}
	write(t, path, limited("4"))
	if other := version("eu"); other == first {
		t.Errorf("other settings have the same version %q", other)
	}
	if other := opened(t, path); opened(t, path) == other {
		t.Error("two files are one")
	} else if rows, err := other.Settings(t.Context(), "eu"); err != nil || rows.Version == first {
		t.Errorf("another source has the same version %q, %v", rows.Version, err)
	}
}

// A program that calls Check itself gets each change once, and decides when it applies.
func TestAProgramMayDecideWhenAFileIsRead(t *testing.T) {
	path := written(t, limited("3"))
	f := opened(t, path)
	l := limiter(t, f.Source(), nil)
	write(t, path, limited("5"))
	if err := l.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := ask(l, "api", 1); d.Limit != 3 {
		t.Errorf("applied before Check: %+v", d)
	}
	for _, want := range []bool{true, false} {
		if changed, err := f.Check(); changed != want || err != nil {
			t.Errorf("changed %v, %v", changed, err)
		}
	}
	if err := l.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := ask(l, "api", 1); d.Limit != 5 {
		t.Errorf("%+v", d)
	}
}

// The zero Source has no settings, and reads no version.
func TestTheZeroSourceHasNoSettings(t *testing.T) {
	l := limiter(t, new(settingsfile.Source), nil)
	if d := ask(l, "api", 1); !d.Allowed || d.Limit != 10 || d.Override != "" {
		t.Errorf("%+v", d)
	}
	start(t, l) // its heartbeats are dropped
}
