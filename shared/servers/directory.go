package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// directory is a server's data directory.
//
// A temporary directory contains a lock file, which this process locks for its whole life. If the lock is free, its
// owner died without a Stop, for example in a test that timed out or by kill -9. The process that makes the next
// temporary directory then removes the abandoned directory, because a Restate leaves 150 MB each time.
type directory struct {
	path string
	lock *os.File // nil if the caller gave the directory
}

const (
	lockName         = "owner.lock"
	temporaryPattern = "weir-servers-*"
	// unfinishedPattern does not match temporaryPattern, because a directory without a lock must not look abandoned.
	unfinishedPattern = "weir-new-*"
)

// openDirectory prepares the given directory, or a temporary one if given is empty.
func openDirectory(server, given string) (*directory, error) {
	if given == "" {
		d, err := newTemporary(server)
		if err != nil {
			return nil, fmt.Errorf("make a directory for %s: %w", server, err)
		}
		return d, nil
	}
	path, err := filepath.Abs(given) // absolute, because the server runs in another directory
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare the directory of %s: %w", server, err)
	}
	return &directory{path: path}, nil
}

func newTemporary(server string) (*directory, error) {
	removeAbandoned()
	unfinished, err := os.MkdirTemp("", unfinishedPattern)
	if err != nil {
		return nil, err
	}
	lock, err := tryLock(filepath.Join(unfinished, lockName), os.O_CREATE)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(unfinished))
	}
	path := filepath.Join(os.TempDir(), "weir-servers-"+server+filepath.Base(unfinished)[len("weir-new"):])
	if err := os.Rename(unfinished, path); err != nil {
		return nil, errors.Join(err, lock.Close(), os.RemoveAll(unfinished))
	}
	return &directory{path: path, lock: lock}, nil
}

func (d *directory) temporary() bool { return d.lock != nil }

// release removes a temporary directory and keeps any other.
func (d *directory) release() error {
	if !d.temporary() {
		return nil
	}
	return errors.Join(removeLocked(d.path), d.lock.Close())
}

// removeLocked removes a directory whose lock is held, the lock file last. A process that finds no lock file leaves the
// directory alone, and a process that finds the file can finish a removal that a kill has interrupted.
func removeLocked(path string) error {
	entries, err := os.ReadDir(path)
	for _, entry := range entries {
		if entry.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, entry.Name())))
		}
	}
	return errors.Join(err, os.RemoveAll(path))
}

// removeAbandoned removes this user's temporary directories without an owner. It ignores errors, which the next caller
// can resolve.
func removeAbandoned() {
	paths, _ := filepath.Glob(filepath.Join(os.TempDir(), temporaryPattern))
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || !ownedByUs(info) {
			continue
		}
		lock, err := tryLock(filepath.Join(path, lockName), 0)
		if err != nil {
			continue // in use, or being removed: a new lock file would obstruct the removal
		}
		_ = removeLocked(path)
		_ = lock.Close()
	}
}

// tryLock opens the file and takes an exclusive lock, which lasts until the file is closed or the process ends. With
// create os.O_CREATE it creates a missing file. It fails immediately if another open file holds the lock, in this
// process or another.
func tryLock(path string, create int) (*os.File, error) {
	f, err := os.OpenFile(path, create|os.O_RDWR, 0o600) // close-on-exec: servers do not inherit it
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

func ownedByUs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
