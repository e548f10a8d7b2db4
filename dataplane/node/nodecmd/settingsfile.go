package nodecmd

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/node"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/reload"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// settingsFile holds the settings of a node without MySQL and Redis. The methods of a nil one do nothing.
type settingsFile struct {
	*reload.Files // Check reads the file again, and keeps the settings in force if it is at fault

	read    atomic.Pointer[fileSettings]
	refresh atomic.Pointer[func() error] // puts what was read in force
}

// fileSettings are what the file holds.
type fileSettings struct {
	*settings.Document
	version int64 // of its tuning in this process, from 1
}

var _ store.Settings = (*settingsFile)(nil)

// openSettingsFile reads the file, and returns an error if its content is wrong.
func openSettingsFile(path string) (f *settingsFile, err error) {
	f = new(settingsFile)
	f.Files, err = reload.OpenBounded([]string{path}, settings.BytesMax, f.apply)
	return f, err
}

func (f *settingsFile) apply(files []reload.File) error {
	if len(files) != 1 {
		return errors.New("want one file")
	}
	document, err := settings.Parse(files[0].Content)
	if err != nil {
		return err
	}
	next := &fileSettings{document, 1}
	if last := f.read.Load(); last != nil {
		next.version = last.version
		if !document.SameTuning(last.Document) {
			next.version++
		}
	}
	f.read.Store(next)
	if refresh := f.refresh.Load(); refresh != nil {
		return (*refresh)()
	}
	return nil
}

// refresher is a limiter.
type refresher interface{ RefreshSettings(context.Context) error }

// drive puts the file's settings in force, now and whenever the file changes.
func (f *settingsFile) drive(ctx context.Context, limiter refresher) error {
	if f == nil {
		return nil
	}
	refresh := func() error { return limiter.RefreshSettings(ctx) }
	f.refresh.Store(&refresh)
	return refresh()
}

// reloads is the file, if there is one.
func (f *settingsFile) reloads() []node.Reload {
	if f == nil {
		return nil
	}
	return []node.Reload{{Name: "settings", Check: f.Check}}
}

// Settings implements store.Settings.
func (f *settingsFile) Settings(_ context.Context, region string) (store.SettingsRows, error) {
	read := f.read.Load()
	rows := store.SettingsRows{NodesLive: 1}
	if tuned := read.TuningOf(region); tuned != tuning.Default() {
		document, err := tuned.Document()
		if err != nil {
			return store.SettingsRows{}, err
		}
		rows.TuningVersion, rows.TuningDocument = read.version, document
	}
	for _, n := range read.Namespaces {
		rows.Namespaces = append(rows.Namespaces, store.NamespaceRow(n))
	}
	for _, o := range read.Overrides {
		rows.Overrides = append(rows.Overrides, store.OverrideRow(o))
	}
	return rows, nil
}

// Heartbeat implements store.Settings. It does nothing: a node on its own has no fleet.
func (*settingsFile) Heartbeat(context.Context, ...heartbeat.Heartbeat) error { return nil }
