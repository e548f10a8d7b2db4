package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNotInstalled is the error for a server whose program is not on this machine.
var ErrNotInstalled = errors.New("not installed (run `make setup`)")

// FindRestate returns the path of restate-server: from RESTATE_SERVER_BIN, this repository's pinned program, or on
// PATH. The pinned program is preferred to PATH because its version is the version that operators should run.
func FindRestate() (string, error) {
	programs := []string{"restate-server"}
	if home, err := restateHome(); err == nil {
		programs = []string{pinnedRestate(home), "restate-server"}
	}
	return find("Restate", "RESTATE_SERVER_BIN", func(string) error { return nil }, programs...)
}

// find returns the first program that exists and fits. If the variable names a program, find tries no other.
func find(what, variable string, fits func(path string) error, programs ...string) (string, error) {
	if named := os.Getenv(variable); named != "" {
		programs = []string{named}
	}
	var errs []error
	for _, program := range programs {
		path, err := exec.LookPath(program)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err == nil {
			err = fits(path)
		}
		if err == nil {
			return path, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("%s server: %w; or name its program in %s: %w",
		what, ErrNotInstalled, variable, errors.Join(errs...))
}

// versionOf returns the line that a program prints, for example "Redis server v=7.0.15 sha=00000000:0 …".
func versionOf(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// pinnedRestate returns the static binary in the npm package for this platform. The package's own launcher is a Node
// program, which would receive the signals in place of the server.
func pinnedRestate(home string) string {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	platform := "restate-server-" + runtime.GOOS + "-" + arch
	return filepath.Join(home, "node_modules", "@restatedev", platform, "bin", "restate-server")
}

// restateHome returns restate/server of this repository. It searches from the working directory upwards, so it works in
// any package's tests.
func restateHome() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		home := filepath.Join(dir, "restate", "server")
		if _, err := os.Stat(filepath.Join(home, restateConfigName)); err == nil {
			return home, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no restate/server/%s in %s or above", restateConfigName, wd)
		}
	}
}
