package settingsfile

import (
	"context"
	"fmt"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/reload"
	"github.com/weirhq/weir/shared/settings/document"
)

// File is a source of the settings in a file. Each call of Settings reads the file again, so a limiter applies a change
// of the file within 5 s, unless the tuning has another interval. To apply a change at once, call
// Limiter.RefreshSettings. All methods may be called concurrently.
type File struct {
	source Source
	files  *reload.Files

	mu      sync.Mutex
	problem error // of the content that was read last; nil if it is valid
}

var _ store.Settings = (*File)(nil)

// Open reads the settings in the file. If the file is missing or invalid, it returns an error, which names the line,
// the field and its bound. A file can have at most document.BytesMax (16 MiB). If it begins with a brace, it is read as
// JSON, else as YAML.
func Open(path string) (f *File, err error) {
	f = new(File)
	f.files, err = reload.OpenBounded([]string{path}, document.BytesMax, f.apply)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) apply(files []reload.File) error {
	err := f.read(files)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problem = err
	return err
}

func (f *File) read(files []reload.File) error {
	if len(files) != 1 {
		return fmt.Errorf("read settings from %d files (want 1)", len(files))
	}
	d, err := document.Parse(files[0].Content)
	if err == nil {
		err = f.source.Set(*d)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", files[0].Path, err)
	}
	return nil
}

// Check reads the file again and reports whether its content has changed since the last call. An invalid content is
// returned as an error once, and the settings that were read before it are kept.
//
// You need Check only if your program decides itself when to read the file: for example, to log each change, or to read
// the file upon SIGHUP alone. Then give the limiter File.Source as its settings.
func (f *File) Check() (changed bool, err error) { return f.files.Check() }

// Source returns a source of the settings that Check has read last. It reads no file.
func (f *File) Source() *Source { return &f.source }

// Settings implements store.Settings. It reads the file again first. While the file is missing or invalid, Settings
// returns an error, and a limiter keeps the settings in force, reports the error in Health.SettingsProblem, and counts
// it in weir_settings_errors_total. Callers must not change the rows.
func (f *File) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	if _, err := f.Check(); err != nil {
		return store.SettingsRows{}, err
	}
	f.mu.Lock()
	err := f.problem
	f.mu.Unlock()
	if err != nil {
		return store.SettingsRows{}, err
	}
	return f.source.Settings(ctx, region)
}

// Heartbeat implements store.Settings. It drops the heartbeats, because no other process reads them.
func (f *File) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	return f.source.Heartbeat(ctx, beats...)
}
