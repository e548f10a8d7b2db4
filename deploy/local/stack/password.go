package stack

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/go-sql-driver/mysql" // as whom the programs' user is made
)

const user = "weir" // of Options.Password

// ProgramsDSN is the database's as the programs are given it.
func (s *Stack) ProgramsDSN() string {
	if s.options.Password == "" {
		return s.DSN()
	}
	return strings.Replace(s.DSN(), "root@", user+":"+s.options.Password+"@", 1)
}

// RedisURL is that of a region's Redis as its nodes are given it.
func (s *Stack) RedisURL(region string) string {
	if s.options.Password == "" {
		return "redis://" + s.Redis[region].Addr()
	}
	return "redis://" + user + ":" + s.options.Password + "@" + s.Redis[region].Addr()
}

func (s *Stack) redisUser() []string {
	if s.options.Password == "" {
		return nil
	}
	return []string{"--user", user, "on", ">" + s.options.Password, "~*", "&*", "+@all"}
}

func (s *Stack) createUser(ctx context.Context) (err error) {
	if s.options.Password == "" {
		return nil
	}
	db, err := sql.Open("mysql", s.DSN())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	name := "'" + user + "'@'127.0.0.1'"
	for _, statement := range []string{
		"CREATE USER IF NOT EXISTS " + name + " IDENTIFIED BY '" + s.options.Password + "'",
		"GRANT ALL PRIVILEGES ON " + Database + ".* TO " + name,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the user %s: %w", user, err)
		}
	}
	return nil
}
