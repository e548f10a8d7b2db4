package servers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// prepare makes sure that data holds an initialised data directory: the one that is there, or a copy of the template.
// Initialising takes half a second and more, copying 26 MB a few milliseconds.
func (e engine) prepare(ctx context.Context, data string) error {
	if _, err := os.Stat(data); err == nil {
		return nil
	}
	template, err := e.template(ctx)
	if err != nil {
		return fmt.Errorf("prepare the data directory of mariadb: %w", err)
	}
	// By way of another name: half a copy must not pass for data at the next start.
	unfinished := data + ".new"
	err = errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o700))
	if err == nil {
		err = os.CopyFS(unfinished, os.DirFS(template))
	}
	if err == nil {
		err = os.Rename(unfinished, data)
	}
	if err != nil {
		return fmt.Errorf("copy the data directory of mariadb: %w", err)
	}
	return nil
}

// template returns a freshly initialised data directory that nobody writes to. There is one for each user and server version;
// whichever process needs it first makes it, the others wait.
func (e engine) template(ctx context.Context) (string, error) {
	cache, err := cacheDirectory()
	if err != nil {
		return "", err
	}
	template := filepath.Join(cache, e.templateName())
	if _, err := os.Stat(template); err == nil {
		return template, nil
	}
	lock, err := waitLock(ctx, template+".lock")
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // closing is what unlocks
	if _, err := os.Stat(template); err == nil {
		return template, nil
	}
	unfinished := template + ".new" // of one who was killed, if it exists: we hold the lock
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := e.initialise(ctx, unfinished); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return template, os.Rename(unfinished, template)
}

// templateName differs whenever what initialise makes could differ.
func (e engine) templateName() string {
	sum := sha256.Sum256([]byte(e.program + "\n" + e.version))
	return fmt.Sprintf("mysql-template-1-%x", sum[:8])
}

func (e engine) initialise(ctx context.Context, data string) error {
	args := append([]string{"--no-defaults"}, e.userArgs()...)
	args = append(args, "--datadir="+data, "--skip-name-resolve")
	if !e.mariadb {
		// From MySQL's manual; only MariaDB is exercised by the tests of this repository.
		return run(ctx, e.program, append(args, "--initialize-insecure")...)
	}
	installer, err := e.beside("mariadb-install-db")
	if err != nil {
		return err
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	return run(ctx, installer, append(args,
		"--auth-root-authentication-method=normal", // root without a password, over TCP too
		"--skip-test-db",
		"--innodb-log-file-size=8M",
		"--innodb-buffer-pool-size=32M",
	)...)
}

// beside finds another program of the same installation: next to the server (macOS), in bin beside its sbin, or on PATH.
func (e engine) beside(program string) (string, error) {
	dir := filepath.Dir(e.program)
	for _, path := range []string{
		filepath.Join(dir, program),
		filepath.Join(dir, "..", "bin", program),
		program,
	} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s, which belongs to %s: %w", program, e.program, ErrNotInstalled)
}

// cacheDirectory is the user's, or where there is none to write to (a build without a home) one below the temporary directory.
func cacheDirectory() (string, error) {
	if base, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(base, "weir", "servers")
		if os.MkdirAll(dir, 0o700) == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("weir-cache-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || !ownedByUs(info) {
		return "", fmt.Errorf("%s belongs to somebody else", dir)
	}
	return dir, nil
}

// waitLock is tryLock until it succeeds or ctx ends.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		lock, err := tryLock(path)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", strings.TrimSuffix(path, ".lock"), ctx.Err())
		case <-tick.C:
		}
	}
}
