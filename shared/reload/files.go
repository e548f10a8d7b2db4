// Package reload keeps the content of files up to date while a process runs: for example certificates, tokens and
// rules. It reads the files every few seconds and compares contents, not times. So it notices the changes of editors,
// renames and Kubernetes' swapped symbolic links, on every file system. That is cheap because the files are small.
package reload

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/weirhq/weir/shared/strict"
)

// BytesMax bounds each file of Open.
const BytesMax = 4 << 20

// File is a file's path and its whole content.
type File struct {
	Path    string
	Content []byte
}

// Files are read together and applied together. Check may be called concurrently. A nil *Files never changes.
type Files struct {
	paths    []string
	bytesMax int // of each
	apply    func([]File) error

	mu   sync.Mutex
	last []File // as of apply's last call
}

// Open reads the files and applies them. If it returns an error, they are not in force. A path that is a folder stands
// for its *.yaml and *.yml files. If apply returns an error, it must have kept the content that was in force.
func Open(paths []string, apply func([]File) error) (*Files, error) {
	return OpenBounded(paths, BytesMax, apply)
}

// OpenBounded is Open with a bound of its own on each file.
func OpenBounded(paths []string, bytesMax int, apply func([]File) error) (*Files, error) {
	f := &Files{paths: paths, bytesMax: bytesMax, apply: apply}
	if _, err := f.Check(); err != nil {
		return nil, err
	}
	return f, nil
}

// Check reads the files again, and applies them if any of them has changed. It returns each change's error once: it
// does not apply rejected contents again.
func (f *Files) Check() (changed bool, err error) {
	if f == nil {
		return false, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.read()
	if err != nil {
		return false, err
	}
	if slices.EqualFunc(now, f.last, func(a, b File) bool {
		return a.Path == b.Path && bytes.Equal(a.Content, b.Content)
	}) {
		return false, nil
	}
	f.last = now
	return true, f.apply(now)
}

func (f *Files) read() ([]File, error) {
	var files []File
	for _, path := range f.paths {
		inside, err := list(path)
		if err != nil {
			return nil, err
		}
		for _, path := range inside {
			content, err := strict.ReadBounded(path, f.bytesMax)
			if err != nil {
				return nil, err
			}
			files = append(files, File{path, content})
		}
	}
	return files, nil
}

// list returns the path itself, or the YAML files of a folder in their order.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var inside []string
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")) {
			inside = append(inside, filepath.Join(path, name))
		}
	}
	if len(inside) == 0 {
		return nil, fmt.Errorf("%s holds no *.yaml file", path)
	}
	return inside, nil
}
