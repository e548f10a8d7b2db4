package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// SQL is a running SQL server of an [Engine]. Its only account is root, without a password. Everything that was
// committed survives Kill and Restart.
type SQL struct {
	*Process
	Engine Engine
	port   *port
}

// StartSQL starts a server and returns when it answers queries. ctx bounds only the start. End the server with Stop.
// The first start of an engine on a machine takes some seconds longer (see template).
func StartSQL(ctx context.Context, e Engine, o Options) (*SQL, error) {
	engine, err := findSQL(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", e, err)
	}
	p, err := newProcess(string(e), o)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", e, err)
	}
	m := &SQL{Process: p, Engine: e, port: newPort(o.Port)}
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
func (m *SQL) Addr() string { return m.port.addr() }

// DSN returns the data source name of a database for the driver "mysql" of go-sql-driver. It has no charset, so text is
// utf8mb4. Times are returned as bytes. Arguments are sent within the statement, which takes one round trip instead of
// three.
func (m *SQL) DSN(database string) string { return m.config(database).FormatDSN() }

func (m *SQL) config(database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", m.Addr(), database
	c.ParseTime = false
	c.InterpolateParams = true
	return c
}

// CreateDatabase makes an empty database with this name, unless it exists.
func (m *SQL) CreateDatabase(ctx context.Context, name string) error {
	err := m.exec(ctx, "CREATE DATABASE IF NOT EXISTS "+quoteName(name))
	if err != nil {
		return fmt.Errorf("create database %q: %w", name, err)
	}
	return nil
}

// DropDatabase removes a database with its content.
func (m *SQL) DropDatabase(ctx context.Context, name string) error {
	if err := m.exec(ctx, "DROP DATABASE "+quoteName(name)); err != nil {
		return fmt.Errorf("drop database %q: %w", name, err)
	}
	return nil
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (m *SQL) exec(ctx context.Context, statement string) error {
	return m.connected(func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
}

// probe checks the data directory of the server on our port, because another server can have taken the port first.
func (m *SQL) probe(ctx context.Context, data string) error {
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

// connected runs f with its own connection pool, because restarts of the server would leave broken connections in a
// shared pool.
func (m *SQL) connected(f func(*sql.DB) error) (err error) {
	config := m.config("")
	config.Timeout, config.ReadTimeout = time.Second, stopTimeout
	config.Logger = &mysql.NopLogger{} // a server that is starting resets connections
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	return f(db)
}
