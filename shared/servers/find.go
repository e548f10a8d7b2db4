package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// ErrNotInstalled says that a server's program is not on this machine.
var ErrNotInstalled = errors.New("not installed (run `make setup`)")

// FindRedis returns the path of redis-server: the one that REDIS_SERVER_BIN names, or on PATH, or where distributions
// put it.
func FindRedis() (string, error) {
	return find("Redis server", "REDIS_SERVER_BIN", nil, "redis-server", "/usr/sbin/redis-server")
}

// FindRestate returns the path of restate-server: the one that RESTATE_SERVER_BIN names, or the pinned one of this
// repository, or on PATH. The pinned one comes before PATH because its version is the one that operators are told to
// run.
func FindRestate() (string, error) {
	return find("Restate server", "RESTATE_SERVER_BIN", pinnedRestate, "restate-server")
}

// find returns the first program there is. A variable that names none is an error, not a reason to look on.
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

// pinnedRestate is the static binary inside the npm package for this platform. The package's own launcher is a Node
// program that would stand between us and the server, and take the signals.
func pinnedRestate() (string, error) {
	home, err := restateHome()
	if err != nil {
		return "", err
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	platform := "restate-server-" + runtime.GOOS + "-" + arch
	return exec.LookPath(filepath.Join(home, "node_modules", "@restatedev", platform, "bin", "restate-server"))
}

// restateHome is restate/server of this repository, found from the working directory upwards, so from any package's
// tests.
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
