package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// ErrNotInstalled is the error for a server whose program is not on this machine.
var ErrNotInstalled = errors.New("not installed (run `make setup`)")

// FindRestate returns the path of restate-server: from RESTATE_SERVER_BIN, this repository's pinned program, or on
// PATH. The pinned program is preferred to PATH because its version is the version that operators should run.
func FindRestate() (string, error) {
	return find("Restate server", "RESTATE_SERVER_BIN", pinnedRestate, "restate-server")
}

// find returns the first program that exists. If the variable names a missing program, that is an error, and find does
// not search further.
func find(what, variable string, first func() (string, error), programs ...string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("%s: %s=%s: %w", what, variable, path, errors.Join(ErrNotInstalled, err))
		}
		return filepath.Abs(found)
	}
	if first != nil {
		if path, err := first(); err == nil {
			return path, nil
		}
	}
	for _, program := range programs {
		if path, err := exec.LookPath(program); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("%s: %w; or name its program in %s", what, ErrNotInstalled, variable)
}

// pinnedRestate returns the static binary in the npm package for this platform. The package's own launcher is a Node
// program, which would receive the signals in place of the server.
func pinnedRestate() (string, error) {
	home, err := restateHome()
	if err != nil {
		return "", err
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	platform := "restate-server-" + runtime.GOOS + "-" + arch
	return exec.LookPath(filepath.Join(home, "node_modules", "@restatedev", platform, "bin", "restate-server"))
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
