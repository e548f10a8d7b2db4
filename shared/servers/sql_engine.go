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

// What holds on one of them is not taken to hold on the other: tests run on both (see [EachSQL]).
const (
	MariaDB Engine = "mariadb" // 10.6 or newer
	MySQL   Engine = "mysql"   // 8.0.19 or newer
)

// Engines are all there are.
func Engines() []Engine { return []Engine{MariaDB, MySQL} }

// Title is the engine's name in text.
func (e Engine) Title() string {
	if e == MySQL {
		return "MySQL"
	}
	return "MariaDB"
}

// installed is the program of an engine.
type installed struct {
	engine  Engine
	program string
	version string // what --version prints
}

// sqlPrograms are where each engine's server is looked for when no variable names it: on PATH, and then where
// distributions put it. Some call MariaDB's mysqld as well, so that each program is asked what it is.
var sqlPrograms = map[Engine]struct {
	variable string
	system   []string
	aside    []string // beside the system's: where `make setup` puts what the system does not have
}{
	MariaDB: {variable: "MARIADB_SERVER_BIN", system: []string{"mariadbd", "/usr/sbin/mariadbd", "/usr/libexec/mariadbd"}},
	MySQL: {variable: "MYSQL_SERVER_BIN", system: []string{"mysqld", "/usr/sbin/mysqld", "/usr/libexec/mysqld"},
		aside: []string{"/opt/homebrew/opt/mysql@8.4/bin/mysqld", "/usr/local/opt/mysql@8.4/bin/mysqld"}},
}

// findSQL finds an engine's server: the one that MARIADB_SERVER_BIN or MYSQL_SERVER_BIN names, or the system's, or the
// one that `make setup` keeps beside the templates (deploy/install/mysql.sh).
func findSQL(ctx context.Context, e Engine) (installed, error) {
	where := sqlPrograms[e]
	if os.Getenv(where.variable) != "" {
		return namedSQL(ctx, e, where.variable)
	}
	programs := slices.Concat(where.system, where.aside)
	if cache, err := cacheDirectory(); err == nil {
		programs = append(programs, filepath.Join(cache, string(e), "mysqld"))
	}
	if found, ok := firstSQL(ctx, e, programs); ok {
		return found, nil
	}
	return installed{}, fmt.Errorf("%s: %w; or name its program in %s", e, ErrNotInstalled, where.variable)
}

func firstSQL(ctx context.Context, e Engine, programs []string) (installed, bool) {
	for _, program := range programs {
		if found, err := askEngine(ctx, program); err == nil && found.engine == e {
			return found, true
		}
	}
	return installed{}, false
}

// namedSQL is what a variable names: another engine's program there is an error, not a reason to look on.
func namedSQL(ctx context.Context, e Engine, variable string) (installed, error) {
	program, err := find(string(e), variable, nil)
	if err != nil {
		return installed{}, err
	}
	found, err := askEngine(ctx, program)
	if err == nil && found.engine != e {
		err = fmt.Errorf("%s=%s is not %s but %s", variable, program, e, found.version)
	}
	return found, err
}

// PreferredSQL is the engine of `make run`: MySQL where the system has it or MYSQL_SERVER_BIN names it, else MariaDB.
// What `make setup` keeps for tests does not count.
func PreferredSQL(ctx context.Context) Engine {
	where := sqlPrograms[MySQL]
	if _, ok := firstSQL(ctx, MySQL, where.system); ok || os.Getenv(where.variable) != "" {
		return MySQL
	}
	return MariaDB
}

// askEngine asks a program, by its name or path, which engine it is.
func askEngine(ctx context.Context, program string) (installed, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return installed{}, err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return installed{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	found := installed{engine: MySQL, program: path, version: strings.TrimSpace(string(out))}
	if strings.Contains(found.version, "MariaDB") {
		found.engine = MariaDB
	}
	return found, nil
}

// serverArgs: what both engines know, and behind --loose what only one of them does.
func (e installed) serverArgs(data string, port int) []string {
	args := append([]string{"--no-defaults"}, e.userArgs()...)
	return append(args,
		"--datadir="+data,
		"--tmpdir="+filepath.Dir(data),
		"--socket=mysqld.sock", // within datadir: a full path could be longer than a socket's name may be
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
		"--innodb-flush-method=nosync",       // so nothing has to wait for the disk
		"--performance-schema=OFF",
		"--loose-innodb-log-file-size=8M",      // MariaDB
		"--loose-innodb-redo-log-capacity=32M", // MySQL
		"--loose-mysqlx=OFF",                   // MySQL's second port
	)
}

// userArgs: the servers refuse to run as root unless told to.
func (e installed) userArgs() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// initialise makes a data directory with one account, root without a password, for TCP too.
func (e installed) initialise(ctx context.Context, data string) error {
	args := append([]string{"--no-defaults"}, e.userArgs()...)
	args = append(args, "--datadir="+data, "--skip-name-resolve", "--innodb-buffer-pool-size=32M")
	if e.engine == MariaDB {
		return e.initialiseMariaDB(ctx, data, args)
	}
	return e.initialiseMySQL(ctx, data, append(args, "--performance-schema=OFF", "--innodb-redo-log-capacity=32M"))
}

// run runs one of the engine's programs to its end.
func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w\nend of its output:\n%s", program, err, out[max(0, len(out)-logTailBytes):])
	}
	return nil
}
