package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	_ "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
)

// bin holds the programs under test, built once.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	bin = dir
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator),
		"github.com/weirhq/weir/dataplane/cmd/...", "github.com/weirhq/weir/controlplane/cmd/...", "github.com/weirhq/weir/deploy/local")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	for _, s := range shared.stacks {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// start runs everything for a test: two regions with two nodes each.
func start(t *testing.T, change ...func(*stack.Options)) *stack.Stack {
	t.Helper()
	o := stack.Options{Bin: bin, Engine: servers.EngineOf(t), Redis: servers.RedisKindOf(t),
		Data: t.TempDir(), CleanupInterval: time.Second}
	for _, f := range change {
		f(&o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	s, err := stack.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			showLogs(t, o.Data)
		}
	})
	return s
}

// shared are the stacks of tests that change nothing of theirs, by engine. Each test has keys of its own.
var shared struct {
	mu     sync.Mutex
	stacks map[servers.Engine]*stack.Stack
}

// startShared is start for tests that share a stack: the first of them starts the stack, which ends with the last test.
func startShared(t *testing.T) *stack.Stack {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	engine, kind := servers.EngineOf(t), servers.RedisKindNamed(t, "shared")
	data := filepath.Join(bin, "shared-"+string(engine))
	if shared.stacks[engine] == nil {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		s, err := stack.Start(ctx, stack.Options{Bin: bin, Engine: engine, Redis: kind, Data: data,
			CleanupInterval: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if shared.stacks == nil {
			shared.stacks = make(map[servers.Engine]*stack.Stack)
		}
		shared.stacks[engine] = s
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, data)
		}
	})
	return shared.stacks[engine]
}

// showLogs prints the end of every log, before the directory is removed.
func showLogs(t *testing.T, data string) {
	logs, err := filepath.Glob(filepath.Join(data, "*", "weir-*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("%s:\n%s", filepath.Base(path), text[max(0, len(text)-3000):])
	}
}

// pause lets time pass on real servers. Use it if nothing should happen, or if a rate must be kept up, because then
// there is no condition to wait for.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func client(n *stack.Node) weirv1connect.RateLimitServiceClient {
	return weirv1connect.NewRateLimitServiceClient(http.DefaultClient, n.URL())
}

func limitRequest(identifier string, cost, limit int64, window time.Duration) *weirv1.LimitRequest {
	return &weirv1.LimitRequest{Workspace: "acme", Namespace: "api", Identifier: identifier, Limit: limit, DurationMs: window.Milliseconds(), Cost: cost, ZeroCost: cost == 0}
}

// roomyWindow returns a window of an hour or some minutes more that is not half over. So no test that counts exact
// units sees its end, after which its cost weighs less and less.
func roomyWindow() time.Duration {
	window := time.Hour
	for now := time.Duration(time.Now().UnixNano()); now%window > window/2; {
		window += time.Minute
	}
	return window
}

func limit(t *testing.T, n *stack.Node, r *weirv1.LimitRequest) *weirv1.LimitResponse {
	t.Helper()
	res, err := client(n).Limit(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatalf("node %s: %v", n.ID, err)
	}
	return res.Msg
}

func database(t *testing.T, s *stack.Stack) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
