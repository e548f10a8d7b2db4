package servers

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// MariaDBForTest starts a server for one test, which ends with it. Tests that only need a database of their own share one server:
// see SharedMariaDB.
func MariaDBForTest(t testing.TB) *MariaDB {
	t.Helper()
	m, err := StartMariaDB(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, m.Process)
	return m
}

// RedisForTest starts a server for one test, which ends with it.
func RedisForTest(t testing.TB) *Redis {
	t.Helper()
	r, err := StartRedis(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r.Process)
	return r
}

// RestateForTest starts a server for one test, which ends with it.
func RestateForTest(t testing.TB) *Restate {
	t.Helper()
	r, err := StartRestate(t.Context(), RestateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r.Process)
	return r
}

// RestateClusterForTest starts three servers for one test, which end with it.
func RestateClusterForTest(t testing.TB) *RestateCluster {
	t.Helper()
	c, err := StartRestateCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range c.Nodes {
		cleanUp(t, node.Process)
	}
	return c
}

// ProxyForTest starts a proxy for one test, which ends with it.
func ProxyForTest(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func cleanUp(t testing.TB, p *Process) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", p.name, p.log.tail())
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// DatabaseForTest makes an empty database for one test and returns its DSN. It is dropped with the test.
func (m *MariaDB) DatabaseForTest(t testing.TB) (dsn string) {
	t.Helper()
	// The test's name helps whoever looks into the server; the number is what makes it unique. At most 64 bytes.
	words := strings.Trim(unusual.ReplaceAllString(strings.ToLower(t.Name()), "_"), "_")
	name := fmt.Sprintf("t%d_%.40s", databases.Add(1), words)
	if err := m.CreateDatabase(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-m.Exited(): // the test killed the server
		default:
			if err := m.DropDatabase(context.Background(), name); err != nil {
				t.Error(err)
			}
		}
	})
	return m.DSN(name)
}

var (
	unusual   = regexp.MustCompile(`[^a-z0-9]+`)
	databases atomic.Int64
)

// shared is the MariaDB of a test binary, started by the first test that asks.
var shared struct {
	mu      sync.Mutex
	allowed bool // by MariaDBMain or ShareMariaDB, which stop it
	server  *MariaDB
	err     error
}

// MariaDBMain is the TestMain of a package whose tests share one MariaDB:
//
//	func TestMain(m *testing.M) { servers.MariaDBMain(m) }
//
//	func TestRows(t *testing.T) {
//		dsn := servers.SharedMariaDB(t).DatabaseForTest(t)
//
// With goleak, whose own TestMain does not return: goleak.VerifyTestMain(servers.ShareMariaDB(m)).
func MariaDBMain(m *testing.M) { os.Exit(ShareMariaDB(m).Run()) }

// ShareMariaDB wraps a test run: the server that its tests share is stopped when they are done.
func ShareMariaDB(m *testing.M) interface{ Run() int } { return sharing{m} }

type sharing struct{ m *testing.M }

func (s sharing) Run() int {
	shared.mu.Lock()
	shared.allowed = true
	shared.mu.Unlock()
	code := s.m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.allowed = false
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Println(err)
			return max(code, 1)
		}
	}
	return code
}

// SharedMariaDB returns the server that all tests of this binary share; the first call starts it. Tests must not Kill it
// and keep to databases of their own (DatabaseForTest). It needs MariaDBMain or ShareMariaDB in TestMain.
func SharedMariaDB(t testing.TB) *MariaDB {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.allowed {
		t.Fatal("SharedMariaDB needs servers.MariaDBMain or servers.ShareMariaDB in this package's TestMain")
	}
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = StartMariaDB(context.Background(), Options{})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}
