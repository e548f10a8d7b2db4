package stack

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/shared/mysqlclient"
	"github.com/weirhq/weir/shared/mysqldsn"
)

// The users as whom the programs call SQL and Redis. weir-control migrates, and may do anything with its database;
// nodes delete changes and nothing else. schema/README.md has the narrower grants of production, table by table.
const (
	controlUser = "weir_control"
	nodeUser    = "weir_node"
	redisUser   = "weir" // with Options.Password alone
)

// A table that is not there yet can be granted only with CREATE.
var grants = []struct{ user, privileges, on string }{
	{controlUser, "ALL PRIVILEGES", "*"},
	{nodeUser, "SELECT, INSERT, UPDATE", "*"},
	{nodeUser, "CREATE, DELETE", "ratelimit_changes"},
}

// ControlDSN returns weir-control's data source name of the database.
func (s *Stack) ControlDSN() string { return s.dsnOf(controlUser) }

// NodeDSN returns the nodes' data source name of the database.
func (s *Stack) NodeDSN() string { return s.dsnOf(nodeUser) }

func (s *Stack) dsnOf(user string) string {
	config, err := mysqldsn.Parse(s.DSN())
	if err != nil {
		panic("the DSN of our own server: " + err.Error())
	}
	config.User, config.Passwd = user, s.options.Password
	return config.FormatDSN()
}

// createUsers makes the programs' users of SQL unless they are there.
func (s *Stack) createUsers(ctx context.Context) (err error) {
	db, err := mysqlclient.Open(s.DSN(), mysqlclient.Options{ConnsMax: 1, IdleMax: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, g := range grants {
		name := "'" + g.user + "'@'127.0.0.1'"
		for _, statement := range []string{
			"CREATE USER IF NOT EXISTS " + name + " IDENTIFIED BY '" + s.options.Password + "'",
			"GRANT " + g.privileges + " ON " + Database + "." + g.on + " TO " + name,
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("create the user %s: %w", g.user, err)
			}
		}
	}
	return nil
}

// RedisURL returns the URL of a region's Redis for its nodes.
func (s *Stack) RedisURL(region string) string { return s.redisURL(region, s.options.Password) }

func (s *Stack) redisURL(region, password string) string {
	if s.options.Password == "" {
		return "redis://" + s.Redis[region].Addr()
	}
	user := redisUser
	if password != "" {
		user += ":" + password
	}
	return "redis://" + user + "@" + s.Redis[region].Addr()
}

// redisArgs returns the options of Redis, as recommended for production: a bound on memory, no
// eviction, and a user with the rights that dataplane/redisorigin/README.md lists.
func (s *Stack) redisArgs() []string {
	args := []string{"--maxmemory", "256mb", "--maxmemory-policy", "noeviction"}
	if s.options.Password == "" {
		return args
	}
	args = append(args, "--user", redisUser, "on", ">"+s.options.Password, "~weir:*", "&weir:*")
	return append(args, redisorigin.Rights(false)...)
}

// controlRedisArgs returns weir-control's arguments for the doctor, which looks at every region's Redis. The password
// is in a file.
func (s *Stack) controlRedisArgs() ([]string, error) {
	args := []string{"--redis-url="}
	for i, region := range s.options.Regions {
		if i > 0 {
			args[0] += ";"
		}
		args[0] += region + "=" + s.redisURL(region, "")
	}
	if s.options.Password == "" {
		return args, nil
	}
	file := s.dir("redis-password")
	if err := os.WriteFile(file, []byte(s.options.Password), 0o600); err != nil {
		return nil, fmt.Errorf("keep the password of Redis: %w", err)
	}
	return append(args, "--redis-password-file="+file), nil
}
