package guides

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/settingsfile"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/settings"
)

// withFile returns a started limiter whose settings come from a file. An invalid file is an error.
func withFile(ctx context.Context, path string) (*dataplane.Limiter, error) {
	file, err := settingsfile.Open(path)
	if err != nil {
		return nil, err
	}
	limiter, err := dataplane.New(dataplane.Config{
		Region:   "eu", // any name: settings may have a tuning for each region
		Settings: file,
	})
	if err != nil {
		return nil, err
	}
	if err := limiter.RefreshSettings(ctx); err != nil { // in force from the first request on
		return nil, err
	}
	return limiter, limiter.Start(ctx) // reads the file again about every 5 s
}

// withValue returns a limiter whose settings are in the program.
func withValue() (*dataplane.Limiter, *settingsfile.Source, error) {
	source, err := settingsfile.New(settings.Document{
		Namespaces: []settings.Namespace{
			{Workspace: "acme", Namespace: "login", Outage: "closed", Window: "precise"},
			{Workspace: "acme", Namespace: "search", Shadow: true},
		},
		Overrides: []settings.Override{
			{Workspace: "acme", Namespace: "api", Pattern: "partner_*", Limit: 1000},
			{Workspace: "acme", Namespace: "api", Pattern: "abuser", Limit: 0},
		},
	})
	if err != nil {
		return nil, nil, err
	}
	limiter, err := dataplane.New(dataplane.Config{Region: "eu", Settings: source})
	if err != nil {
		return nil, nil, err
	}
	return limiter, source, limiter.RefreshSettings(context.Background())
}

// block shuts a user out.
func block(ctx context.Context, limiter *dataplane.Limiter, source *settingsfile.Source, d settings.Document,
	user string) error {
	d.Overrides = append(d.Overrides, settings.Override{Workspace: "acme", Namespace: "api", Pattern: user, Limit: 0})
	if err := source.Set(d); err != nil {
		return err
	}
	return limiter.RefreshSettings(ctx)
}

// inRegion returns a node's limiter. The nodes of the region share their counts through Redis.
func inRegion(origin store.Origin, file *settingsfile.File, nodes int) (*dataplane.Limiter, error) {
	return dataplane.New(dataplane.Config{
		Region: "eu", Origin: origin, Settings: file,
		RegionNodes: nodes, // without MySQL, no heartbeats count them
	})
}

func TestLoginsAreDeniedDuringAnOutage(t *testing.T) {
	source, err := settingsfile.New(settings.Document{Namespaces: []settings.Namespace{
		{Workspace: "acme", Namespace: "login", Outage: "closed"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	origin.Faults.Fail(errors.New("connection refused"))
	limiter, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, Settings: source})
	if err != nil {
		t.Fatal(err)
	}
	if err := limiter.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := limiter.Allow(t.Context(), dataplane.Request{
		Workspace: "acme", Namespace: "login", Identifier: "ann", Limit: 10, Duration: time.Minute,
	})
	if d.Allowed || d.Source != dataplane.SourceDegradedClosed || d.RetryAfter <= 0 {
		t.Errorf("%+v", d)
	}
}

// fileOfThePage is the YAML that the page shows.
func fileOfThePage(t *testing.T) (path string) {
	t.Helper()
	page, err := os.ReadFile("settings.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no YAML")
	}
	path = filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, block[1], 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func asks(l *dataplane.Limiter, namespace, identifier string, cost int64) dataplane.Decision {
	return l.Allow(context.Background(), dataplane.Request{Workspace: "acme", Namespace: namespace, Identifier: identifier,
		Limit: 10, Duration: time.Minute, Cost: cost})
}

// The file and the value set the same limits.
func TestSettingsOfThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := fileOfThePage(t)
		byFile, err := withFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		byValue, source, err := withValue()
		if err != nil {
			t.Fatal(err)
		}
		for _, limiter := range []*dataplane.Limiter{byFile, byValue} {
			if d := asks(limiter, "api", "partner_7", 1); !d.Allowed || d.Limit != 1000 || d.Override != "partner_*" {
				t.Errorf("%+v", d)
			}
			if d := asks(limiter, "api", "abuser", 1); d.Allowed || !d.NeverPasses {
				t.Errorf("%+v", d)
			}
			if d := asks(limiter, "search", "ann", 11); !d.Allowed || !d.Shadowed {
				t.Errorf("%+v", d)
			}
			if d := asks(limiter, "login", "ann", 11); d.Allowed || d.Shadowed {
				t.Errorf("%+v", d)
			}
		}
		if err := block(t.Context(), byValue, source, settings.Document{}, "bob"); err != nil {
			t.Error(err)
		}
		if d := asks(byValue, "api", "bob", 1); d.Allowed {
			t.Errorf("%+v", d)
		}
		// A mistake in the file keeps the settings, and is in Health.
		page, err := os.ReadFile("settings.md")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		wrong := strings.Replace(string(text), "outage: closed", "outage: shut", 1)
		if err := os.WriteFile(path, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		shown := strings.ReplaceAll(byFile.Health().SettingsProblem, path, "/etc/acme/limits.yaml")
		if shown == "" || !strings.Contains(string(page), "    "+shown+"\n") {
			t.Errorf("the page does not show\n    %s", shown)
		}
		if d := asks(byFile, "api", "partner_7", 1); d.Limit != 1000 {
			t.Errorf("%+v", d)
		}
		if err := byFile.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := withFile(t.Context(), path); !errors.Is(err, settings.ErrInvalid) {
			t.Errorf("at the start: %v", err)
		}
	})
}

// Nodes of a region with the same file share a limit that the file sets.
func TestNodesOfARegionShareALimitOfTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.yaml")
		const text = "kind: weir-settings\nversion: 1\noverrides:\n  - {workspace: acme, namespace: api, pattern: ann, limit: 4}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		passed := 0
		for range 3 {
			file, err := settingsfile.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			node, err := inRegion(origin.Client(), file, 3)
			if err != nil {
				t.Fatal(err)
			}
			if err := node.RefreshSettings(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if d := asks(node, "api", "ann", 1); d.Allowed {
					passed++
				}
			}
			if err := node.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if passed != 4 {
			t.Errorf("%d requests pass on three nodes, want 4", passed)
		}
	})
}
