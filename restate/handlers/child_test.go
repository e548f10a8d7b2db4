package handlers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/store"
)

// childVariable makes this test binary serve the handlers for a test that kills it: "address dsn" for handlers that get
// stuck, "address dsn rollouts" (or retirement, or cleanup) for handlers that never get stuck, or "address dsn
// stuck-retirement" for handlers on stuckTables.
const childVariable = "WEIR_TEST_HANDLERS_CHILD"

// childStuckAt is the batch after which the child reports that it is stuck.
const childStuckAt = 3

const childStuck = "batch deleted, not journaled"

// childMain serves until it is killed, or its parent has ended.
func childMain() {
	words := strings.Fields(os.Getenv(childVariable))
	if err := childServe(words[0], words[1], words[2:]...); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func childServe(address, dsn string, what ...string) error {
	db, err := store.Open(dsn)
	if err != nil {
		return err
	}
	stuck := &stuckStore{Store: store.New(db), at: childStuckAt, reached: make(chan struct{})}
	options := cleanupOptions(stuck)
	switch {
	case slices.Contains(what, "cleanup"):
		options = cleanupOptions(stuck.Store)
	case slices.Contains(what, "rollouts"):
		options = rolloutOptions(stuck.Store)
	case slices.Contains(what, "retirement"):
		options = retirementOptions(stuck.Store)
	case slices.Contains(what, "stuck-retirement"):
		options = retirementOptions(stuck.Store)
		options.Retirement = retire.NewWork(stuckTables{stuck.Store}, 30*time.Second, 0, options.Metrics)
	}
	options.Orders = testKeys
	endpoint, err := NewEndpoint(options)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent holds the other end
		os.Exit(1)
	}()
	go func() {
		<-stuck.reached
		fmt.Println(childStuck)
	}()
	fmt.Println("serving")
	return endpoint.Serve(l)
}

// startChild starts the child and returns it with its output.
func startChild(t *testing.T, address, dsn string, more ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	program, err := childProgram()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(program)
	child.Env = append(os.Environ(), childVariable+"="+strings.Join(append([]string{address, dsn}, more...), " "))
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = in.Close()
		_ = child.Wait()
	})
	lines := bufio.NewScanner(out)
	expectLine(t, lines, "serving")
	return child, lines
}

// childProgram is this test binary without the race detector, because with it the SDK compiles its core for seconds in
// each child. A killed child reports no races anyway.
var childProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(childDir, "handlers.test")
	out, err := exec.Command("go", "test", "-c", "-o", program, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build the process that is killed: %w\n%s", err, out)
	}
	return program, err
})

// childDir is created by TestMain, which also removes it.
var childDir string

func expectLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	for lines.Scan() {
		if lines.Text() == want {
			return
		}
		t.Log("child:", lines.Text())
	}
	t.Fatalf("the child ended before it said %q: %v", want, lines.Err())
}

// stuckStore is a store whose at-th batch is deleted, but does not return until it is let go.
type stuckStore struct {
	*store.Store
	at      int
	batches int
	reached chan struct{} // closed when the batch is deleted
	letGo   chan struct{} // nil: never
}

func (s *stuckStore) DeleteUndated(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	n, err := s.Store.DeleteUndated(ctx, cutoff, rows)
	if s.batches++; s.batches == s.at && err == nil {
		close(s.reached)
		<-s.letGo
	}
	return n, err
}

// stuckTables renames and drops tables, reports it, and never returns.
type stuckTables struct{ *store.Store }

const childStuckTables = "table changed, not journaled"

func (s stuckTables) RenameTable(ctx context.Context, table, from, to string, fence int64) (retire.TableNames, error) {
	if names, err := s.Store.RenameTable(ctx, table, from, to, fence); err != nil {
		return names, err
	}
	fmt.Println(childStuckTables)
	select {}
}

func (s stuckTables) DropTable(ctx context.Context, table, dated string, fence int64) (retire.TableDrop, error) {
	if did, err := s.Store.DropTable(ctx, table, dated, fence); err != nil {
		return did, err
	}
	fmt.Println(childStuckTables)
	select {}
}

// cleanupOptions returns handlers whose cleanup deletes ten rows a batch, without a grace period.
func cleanupOptions(s cleanupStore) Options {
	config := cleanup.DefaultConfig()
	config.Limits.BatchRowsMax, config.Grace = 10, 0
	// Slow batches of the smallest size would end a run, and its journal, early on a busy machine.
	config.Limits.BatchSlow, config.Limits.RunTimeMax = time.Minute, 10*time.Minute
	metrics := controlplane.NewMetrics()
	cleanup, err := cleanup.New(config, s, cleanup.NewMetrics())
	if err != nil {
		panic(err)
	}
	return Options{Cleanup: cleanup, Audit: s, Metrics: metrics, Log: slog.New(slog.DiscardHandler)}
}

type cleanupStore interface {
	cleanup.Store
	audit.Store
}
