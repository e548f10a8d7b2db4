package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MariaDB is a running MariaDB, or MySQL 8 or newer. Its only account is root, without a password. Everything that
// was committed survives Kill and Restart.
type MariaDB struct {
	*Process
	port *port
}

// StartMariaDB starts a server and returns when it answers queries. ctx bounds the start, not the server's life: end it
// with Stop. The first start on a machine takes half a second longer (see template).
func StartMariaDB(ctx context.Context, o Options) (*MariaDB, error) {
	engine, err := findEngine(ctx)
	if err != nil {
		return nil, fmt.Errorf("start mariadb: %w", err)
	}
	p, err := newProcess("mariadb", o)
	if err != nil {
		return nil, fmt.Errorf("start mariadb: %w", err)
	}
	m := &MariaDB{Process: p, port: newPort(o.Port)}
	data := filepath.Join(p.Dir(), "data")
	p.ports = []*port{m.port}
	p.command = func() *exec.Cmd {
		return exec.Command(engine.program, append(engine.serverArgs(data, m.port.number), o.Args...)...)
	}
	p.probe = func(ctx context.Context) error { return m.probe(ctx, data) }
	err = engine.prepare(ctx, data)
	if err == nil {
		err = p.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return m, nil
}

// Addr returns host:port.
func (m *MariaDB) Addr() string { return m.port.addr() }

// DSN returns the data source name of a database for the driver "mysql" of go-sql-driver. It names no charset, so text
// is utf8mb4; times come as bytes; arguments travel within the statement (one round trip instead of three).
func (m *MariaDB) DSN(database string) string { return m.config(database).FormatDSN() }

func (m *MariaDB) config(database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", m.Addr(), database
	c.ParseTime = false
	c.InterpolateParams = true
	return c
}

// CreateDatabase makes an empty database of this name unless there is one already.
func (m *MariaDB) CreateDatabase(ctx context.Context, name string) error {
	err := m.exec(ctx, "CREATE DATABASE IF NOT EXISTS "+quoteName(name))
	if err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	return nil
}

// DropDatabase removes a database and all that is in it.
func (m *MariaDB) DropDatabase(ctx context.Context, name string) error {
	if err := m.exec(ctx, "DROP DATABASE "+quoteName(name)); err != nil {
		return fmt.Errorf("drop database %q: %w", name, err)
	}
	return nil
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (m *MariaDB) exec(ctx context.Context, statement string) error {
	return m.connected(func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
}

// probe asks which data the server on our port serves: another one may have taken the port first.
func (m *MariaDB) probe(ctx context.Context, data string) error {
	return m.connected(func(db *sql.DB) error {
		var served string
		if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&served); err != nil {
			return err
		}
		ours, err := os.Stat(data)
		if err != nil {
			return err
		}
		if theirs, err := os.Stat(served); err != nil || !os.SameFile(ours, theirs) {
			return fmt.Errorf("the server on %s serves %s, not %s", m.Addr(), served, data)
		}
		return nil
	})
}

// connected runs f with a connection pool of its own: the server's life is full of breaks that would only sour a kept one.
func (m *MariaDB) connected(f func(*sql.DB) error) (err error) {
	config := m.config("")
	config.Timeout, config.ReadTimeout = time.Second, stopTimeout
	config.Logger = &mysql.NopLogger{} // a server that is just starting resets connections
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}

// engine is the installed server program.
type engine struct {
	program string
	version string // what --version prints
	mariadb bool   // else MySQL
}

func findEngine(ctx context.Context) (engine, error) {
	program, err := FindMariaDB()
	if err != nil {
		return engine{}, err
	}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return engine{}, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	version := strings.TrimSpace(string(out))
	return engine{program: program, version: version, mariadb: strings.Contains(version, "MariaDB")}, nil
}

// serverArgs: what both engines know, and behind --loose what only one of them does.
func (e engine) serverArgs(data string, port int) []string {
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
		"--innodb-flush-log-at-trx-commit=2", // a commit survives the process, not a power cut
		"--performance-schema=OFF",
		"--loose-innodb-log-file-size=8M",
		"--loose-mysqlx=OFF", // MySQL's second port
	)
}

// userArgs: the servers refuse to run as root unless told to.
func (e engine) userArgs() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// run runs one of the engine's programs to its end.
func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	var out lastBytes
	cmd.Stdout, cmd.Stderr = io.Writer(&out), io.Writer(&out)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w\nend of its output:\n%s", program, err, out.String())
	}
	return nil
}
