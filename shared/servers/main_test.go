package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// TestMain also proves that no goroutine outlives its server.
func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		parentMain()
		return
	}
	if addr := os.Getenv(programVariable); addr != "" {
		programMain(addr)
		return
	}
	redis.SetLogger(silence{}) // these tests refuse connections on purpose
	goleak.VerifyTestMain(ShareSQL(m))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// parentVariable makes this test binary a parent of servers instead of a run of tests.
const parentVariable = "WEIR_SERVERS_TEST_PARENT"

// kinds are all servers. The port is the last of Process.ports.
var kinds = map[string]func(ctx context.Context, port int) (*Process, error){
	"mariadb": sqlKind(MariaDB),
	"mysql":   sqlKind(MySQL),
	"redis":   redisKind(SystemRedis),
	"valkey":  redisKind(Valkey),
	"redis8":  redisKind(Redis8),
	"restate": func(ctx context.Context, port int) (*Process, error) {
		r, err := StartRestate(ctx, RestateOptions{FabricPort: port})
		if err != nil {
			return nil, err
		}
		return r.Process, nil
	},
}

func redisKind(kind RedisKind) func(ctx context.Context, port int) (*Process, error) {
	return func(ctx context.Context, port int) (*Process, error) {
		r, err := StartRedis(ctx, kind, Options{Port: port})
		if err != nil {
			return nil, err
		}
		return r.Process, nil
	}
}

func sqlKind(e Engine) func(ctx context.Context, port int) (*Process, error) {
	return func(ctx context.Context, port int) (*Process, error) {
		m, err := StartSQL(ctx, e, Options{Port: port})
		if err != nil {
			return nil, err
		}
		return m.Process, nil
	}
}

// refused returns nil if no process listens on addr.
func refused(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		return errors.Join(errors.New(addr+" accepts connections"), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return nil
}

func mustRefuse(t *testing.T, addr string) {
	t.Helper()
	if err := refused(addr); err != nil {
		t.Fatal(err)
	}
}

// gone answers nil if there is nothing at path.
func gone(path string) error {
	switch _, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("%s is still there", path)
	}
}

func mustBeGone(t *testing.T, path string) {
	t.Helper()
	must(t, gone(path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
