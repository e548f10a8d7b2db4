package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Engine is a kind of SQL server.
type Engine string

// A property of one engine may not hold for the other, so tests run on both (see [EachSQL]).
const (
	MariaDB Engine = "mariadb" // 10.6 or newer
	MySQL   Engine = "mysql"   // 8.0.19 or newer
)

// Engines returns all engines.
func Engines() []Engine { return []Engine{MariaDB, MySQL} }

// Title returns the engine's name in text.
func (e Engine) Title() string {
	if e == MySQL {
		return "MySQL"
	}
	return "MariaDB"
}

// installed is an engine's program.
type installed struct {
	engine  Engine
	program string
	version string // output of --version
}

// sqlPrograms are the places where each engine's server is searched if no variable names it: PATH, and the usual
// directories of distributions. Some distributions call MariaDB's server mysqld as well, so the version of each program
// is checked.
var sqlPrograms = map[Engine]struct {
	variable string
	system   []string
	aside    []string // other places for programs that the system does not have
}{
	MariaDB: {variable: "MARIADB_SERVER_BIN", system: []string{"mariadbd", "/usr/sbin/mariadbd", "/usr/libexec/mariadbd"}},
	MySQL: {variable: "MYSQL_SERVER_BIN", system: []string{"mysqld", "/usr/sbin/mysqld", "/usr/libexec/mysqld"},
		aside: []string{"/opt/homebrew/opt/mysql@8.4/bin/mysqld", "/usr/local/opt/mysql@8.4/bin/mysqld"}},
}

// findSQL finds an engine's server: from MARIADB_SERVER_BIN or MYSQL_SERVER_BIN, in the system, or in the cache where
// `make setup` stores it (deploy/install/aside.sh).
func findSQL(ctx context.Context, e Engine) (installed, error) {
	programs := slices.Concat(sqlPrograms[e].system, sqlPrograms[e].aside)
	if cache, err := cacheDirectory(); err == nil {
		programs = append(programs, filepath.Join(cache, string(e), "mysqld"))
	}
	return firstSQL(ctx, e, programs)
}

func firstSQL(ctx context.Context, e Engine, programs []string) (found installed, err error) {
	found.engine = e
	found.program, err = find(string(e), sqlPrograms[e].variable, func(path string) (err error) {
		found.version, err = versionOf(ctx, path)
		if err == nil && strings.Contains(found.version, "MariaDB") != (e == MariaDB) {
			err = fmt.Errorf("%s is not %s but %s", path, e, found.version)
		}
		return err
	}, programs...)
	return found, err
}

// PreferredSQL returns the engine of `make run`: MySQL if the system has it or MYSQL_SERVER_BIN names it, else MariaDB.
// The programs that `make setup` stores for tests do not count.
func PreferredSQL(ctx context.Context) Engine {
	where := sqlPrograms[MySQL]
	if _, err := firstSQL(ctx, MySQL, where.system); err == nil || os.Getenv(where.variable) != "" {
		return MySQL
	}
	return MariaDB
}

// serverArgs returns the arguments for both engines. Arguments of a single engine have the prefix --loose.
func (e installed) serverArgs(data string, port int) []string {
	args := append([]string{"--no-defaults"}, e.userArgs()...)
	return append(args,
		"--datadir="+data,
		"--tmpdir="+filepath.Dir(data),
		"--socket=mysqld.sock", // within datadir, because a full path could be longer than a socket's name can be
		"--pid-file=mysqld.pid",
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(port),
		"--max-connections=500",
		"--skip-name-resolve",
		"--skip-log-bin",
		"--character-set-server=utf8mb4",
		"--collation-server=utf8mb4_bin",
		"--innodb-buffer-pool-size=64M",
		"--innodb-flush-log-at-trx-commit=2", // a commit survives the process, not a power cut;
		"--innodb-flush-method=nosync",       // so nothing waits for the disk
		"--performance-schema=OFF",
		"--loose-innodb-log-file-size=8M",      // MariaDB
		"--loose-innodb-redo-log-capacity=32M", // MySQL
		"--loose-mysqlx=OFF",                   // MySQL's second port
	)
}

// userArgs: the servers run as root only with this argument.
func (e installed) userArgs() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// initialise makes a data directory with a single account, root without a password, also for TCP.
func (e installed) initialise(ctx context.Context, data string) error {
	args := append([]string{"--no-defaults"}, e.userArgs()...)
	args = append(args, "--datadir="+data, "--skip-name-resolve", "--innodb-buffer-pool-size=32M")
	if e.engine == MariaDB {
		return e.initialiseMariaDB(ctx, data, args)
	}
	return e.initialiseMySQL(ctx, data, append(args, "--performance-schema=OFF", "--innodb-redo-log-capacity=32M"))
}

// run runs one of the engine's programs and waits for its end.
func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w\nend of its output:\n%s", program, err, out[max(0, len(out)-logTailBytes):])
	}
	return nil
}
