package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// tester is *testing.T or *testing.B.
type tester[T any] interface {
	testing.TB
	Run(name string, f func(T)) bool
}

// EachSQL runs a test on each engine, as a subtest with the engine's name:
//
//	func TestRows(t *testing.T) { servers.EachSQL(t, testRows) }
//
//	func testRows(t *testing.T) {
//		dsn := servers.SharedSQL(t).DatabaseForTest(t)
//
// Servers for tests find their engine in that name, and exist only within EachSQL and [TurnSQL]. So no test runs on
// only one engine by mistake.
func EachSQL[T tester[T]](t T, f func(T)) { onEngines(t, Engines(), f) }

// TurnSQL runs a test on one engine or on both, according to WEIR_SQL_TURN ("mariadb", "mysql", "both"; empty means
// mariadb). Use it for tests of whole systems, which take long and depend little on the engine. With `make test` the
// engines take turns.
func TurnSQL[T tester[T]](t T, f func(T)) {
	t.Helper()
	engines, err := turn(os.Getenv("WEIR_SQL_TURN"))
	if err != nil {
		t.Fatal(err)
	}
	onEngines(t, engines, f)
}

func turn(which string) ([]Engine, error) {
	switch {
	case which == "both":
		return Engines(), nil
	case which == "":
		return Engines()[:1], nil
	case slices.Contains(Engines(), Engine(which)):
		return []Engine{Engine(which)}, nil
	}
	return nil, fmt.Errorf(`WEIR_SQL_TURN is %q, want "mariadb", "mysql" or "both"`, which)
}

func onEngines[T tester[T]](t T, engines []Engine, f func(T)) {
	t.Helper()
	for _, e := range engines {
		t.Run(string(e), f)
	}
}

// EngineOf returns the engine of a test, which EachSQL or TurnSQL has put into its name.
func EngineOf(t testing.TB) Engine {
	t.Helper()
	e, err := engineOf(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var errNoEngine = errors.New("has no engine: run the test with servers.EachSQL or servers.TurnSQL")

func engineOf(test string) (Engine, error) {
	for _, part := range strings.Split(test, "/")[1:] {
		if slices.Contains(Engines(), Engine(part)) {
			return Engine(part), nil
		}
	}
	return "", fmt.Errorf("%s %w", test, errNoEngine)
}

// SQLForTest starts a server for a test, with further arguments, and stops it when the test ends. Tests that need only
// a database should share a server: see SharedSQL.
func SQLForTest(t testing.TB, args ...string) *SQL {
	t.Helper()
	m, err := StartSQL(t.Context(), EngineOf(t), Options{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, m.Process)
	return m
}

// DatabaseForTest makes an empty database for a test and returns its DSN. It is dropped when the test ends.
func (m *SQL) DatabaseForTest(t testing.TB) (dsn string) {
	t.Helper()
	// The test's name helps when looking into the server; the number is what makes it unique. At most 64 bytes.
	words := strings.Trim(unusual.ReplaceAllString(strings.ToLower(t.Name()), "_"), "_")
	name := fmt.Sprintf("t%d_%.40s", databases.Add(1), words)
	m.CreateForTest(t, name)
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

// CreateForTest makes a database with a name on a server of the test's own, which drops it with all its data.
func (m *SQL) CreateForTest(t testing.TB, name string) {
	t.Helper()
	if err := m.CreateDatabase(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

var (
	unusual   = regexp.MustCompile(`[^a-z0-9]+`)
	databases atomic.Int64
)

// shared are the servers of a test binary. The first test that needs a server of an engine starts it.
var shared struct {
	mu       sync.Mutex
	allowed  bool // set by SQLMain or ShareSQL, which stop the servers
	servers  map[Engine]started[*SQL]
	replicas map[Engine]started[*Replica]
}

type started[S interface{ Stop() error }] struct {
	server S
	err    error
}

// SQLMain is the TestMain of a package whose tests share a server of each engine:
//
//	func TestMain(m *testing.M) { servers.SQLMain(m) }
//
// With goleak, whose TestMain does not return, use goleak.VerifyTestMain(servers.ShareSQL(m)).
func SQLMain(m *testing.M) { os.Exit(ShareSQL(m).Run()) }

// ShareSQL wraps a test run, and stops the servers that its tests share when they are done.
func ShareSQL(m *testing.M) interface{ Run() int } { return sharing{m} }

type sharing struct{ m *testing.M }

func (s sharing) Run() int {
	shared.mu.Lock()
	shared.allowed, shared.servers, shared.replicas = true, make(map[Engine]started[*SQL]),
		make(map[Engine]started[*Replica])
	shared.mu.Unlock()
	code := s.m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.allowed = false
	if err := errors.Join(stopAll(shared.servers), stopAll(shared.replicas)); err != nil {
		fmt.Println(err)
		return max(code, 1)
	}
	return code
}

func stopAll[S interface{ Stop() error }](all map[Engine]started[S]) error {
	var errs []error
	for _, s := range all {
		if s.err == nil {
			errs = append(errs, s.server.Stop())
		}
	}
	return errors.Join(errs...)
}

// SharedSQL returns the server of the test's engine that all tests of this binary share. The first call starts it.
// Tests must not Kill it and must use their own databases (DatabaseForTest). It needs SQLMain or ShareSQL in TestMain.
func SharedSQL(t testing.TB) *SQL {
	t.Helper()
	return sharedOf(t, shared.servers, func(e Engine) (*SQL, error) {
		return StartSQL(context.Background(), e, Options{})
	})
}

func sharedOf[S interface{ Stop() error }](t testing.TB, all map[Engine]started[S], start func(Engine) (S, error)) S {
	t.Helper()
	e := EngineOf(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.allowed {
		t.Fatal("servers that tests share need servers.SQLMain or servers.ShareSQL in this package's TestMain")
	}
	s, ok := all[e]
	if !ok {
		s.server, s.err = start(e)
		all[e] = s
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}
