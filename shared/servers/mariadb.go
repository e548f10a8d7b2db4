package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// initialiseMariaDB makes a data directory with MariaDB's script.
func (e installed) initialiseMariaDB(ctx context.Context, data string, args []string) error {
	installer, err := e.beside("mariadb-install-db")
	if err != nil {
		return err
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	return run(ctx, installer, append(args, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--innodb-log-file-size=8M")...)
}

// beside finds another program of the same installation: next to the server (macOS), in the bin directory next to its
// sbin, or on PATH.
func (e installed) beside(program string) (string, error) {
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
