package nodecmd

import (
	"context"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/node"
	"github.com/weirhq/weir/dataplane/settingsfile"
)

// settingsFile holds the settings of a node without MySQL and Redis. Its methods do nothing for nil.
type settingsFile struct {
	*settingsfile.File

	refresh atomic.Pointer[func() error] // applies the settings that were read
}

// openSettingsFile reads the file, and returns an error if its content is wrong.
func openSettingsFile(path string) (*settingsFile, error) {
	file, err := settingsfile.Open(path)
	if err != nil {
		return nil, err
	}
	return &settingsFile{File: file}, nil
}

// refresher is a limiter.
type refresher interface{ RefreshSettings(context.Context) error }

// drive puts the file's settings in force, now and whenever the file changes. The limiter's settings must be Source of
// the file, so that Check finds each change, and the node logs and counts it.
func (f *settingsFile) drive(ctx context.Context, limiter refresher) error {
	if f == nil {
		return nil
	}
	refresh := func() error { return limiter.RefreshSettings(ctx) }
	f.refresh.Store(&refresh)
	return refresh()
}

// Check reads the file again, and keeps the settings in force if the file is invalid.
func (f *settingsFile) Check() (changed bool, err error) {
	changed, err = f.File.Check()
	if refresh := f.refresh.Load(); changed && err == nil && refresh != nil {
		err = (*refresh)()
	}
	return changed, err
}

// reloads returns the file, if there is one.
func (f *settingsFile) reloads() []node.Reload {
	if f == nil {
		return nil
	}
	return []node.Reload{{Name: "settings", Check: f.Check}}
}
