package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/servers"
)

// An old copy of MySQL is restored under a fleet that serves, by the table of deploy/PRODUCTION.md. Its limits come
// back, and settings that are applied again replace them. Cost spent since the copy stays spent: in each region and in
// the regions' counts of each other, also if a region's Redis is lost right afterwards.
func TestAnOldBackupIsRestored(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testAnOldBackupIsRestored)
}

func testAnOldBackupIsRestored(t *testing.T) {
	s, window := start(t), roomyWindow()
	eu, us := s.Nodes[0], s.Nodes[2]
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	limits := func(user7, user8, user9 int64) {
		t.Helper()
		for _, n := range s.Nodes {
			for user, want := range map[string]int64{"user_7": user7, "user_8": user8, "user_9": user9} {
				await.True(t, fmt.Sprintf("%s limits %s to %d", n.ID, user, want), func() bool {
					return limit(t, n, limitRequest(user, 0, 100, window)).Limit == want
				})
			}
		}
	}
	left := func(identifier string, want int64) {
		t.Helper()
		for _, n := range s.Nodes {
			var r *weirv1.LimitResponse
			await.True(t, fmt.Sprintf("%s has %d left of %s", n.ID, want, identifier), func() bool {
				r = limit(t, n, limitRequest(identifier, 0, 100, window))
				return r.Remaining == want
			})
		}
	}
	spend := func(n *stack.Node, identifier string, cost int64) {
		t.Helper()
		if !limit(t, n, limitRequest(identifier, cost, 100, window)).Allowed {
			t.Fatalf("%s denied %d of %s", n.ID, cost, identifier)
		}
	}

	weirctl(t, s.API(), "override", "set", "acme", "api", "user_7", "--limit", "3", "--actor", "ann", "--reason", "first")
	weirctl(t, s.API(), "override", "set", "acme", "api", "user_9", "--limit", "1", "--actor", "ann", "--reason", "first")
	spend(eu, "kept", 30)
	spend(us, "kept", 20)
	left("kept", 50)
	limits(3, 100, 1)
	restore := backUp(t, s)

	weirctl(t, s.API(), "override", "set", "acme", "api", "user_7", "--limit", "5", "--actor", "ann", "--reason", "more")
	weirctl(t, s.API(), "override", "set", "acme", "api", "user_8", "--limit", "9", "--actor", "ann", "--reason", "new")
	weirctl(t, s.API(), "override", "delete", "acme", "api", "user_9", "--yes", "--actor", "ann", "--reason", "mended")
	weirctl(t, s.API(), "export", "-f", settings)
	spend(eu, "kept", 10)
	spend(us, "since", 40)
	left("kept", 40)
	left("since", 60)
	limits(5, 9, 100)

	l := startLoad(t, s, "restore_")
	restore()
	limits(3, 100, 1)
	weirctl(t, s.API(), "apply", "-f", settings, "--prune", "--yes", "--actor", "ann", "--reason", "an old backup was restored")
	limits(5, 9, 100)
	left("kept", 40)
	left("since", 60)
	spend(eu, "since", 5)
	spend(us, "kept", 5)
	left("since", 55)
	left("kept", 35)

	l.check(t)
	originsHold(t, s, l, "restore_", fault{lost: nothing, doubled: retried})
	for _, n := range s.Nodes[2:] { // their memory would hide missing foreign cost
		if err := n.End(40 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "eu has heard all of us", func() bool {
		return limit(t, eu, limitRequest("kept", 0, 100, window)).Remaining == 35
	})
	if err := s.Redis["us"].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Redis["us"].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Nodes[2:] {
		if err := n.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	left("since", 55)
	left("kept", 35)
	spend(eu, "since", 5)
	spend(us, "kept", 5)
	left("since", 50)
	left("kept", 30)
	audit := &day{t: t, api: s.API(), dir: t.TempDir()}
	audit.run(0, "audit", "verify")
}

// backUp copies the server's files; restore puts the copy in their place while everything else runs.
func backUp(t *testing.T, s *stack.Stack) (restore func()) {
	t.Helper()
	data, copied := filepath.Join(s.SQL.Dir(), "data"), filepath.Join(t.TempDir(), "data")
	replace := func(from, to string) {
		t.Helper()
		if err := s.SQL.End(await.Patience); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		command(t, ".", "cp", "-a", from, to)
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		if err := s.SQL.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	replace(data, copied)
	return func() { t.Helper(); replace(copied, data) }
}
