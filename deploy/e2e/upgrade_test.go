package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// The build before the newest migration runs a fleet under load. This build takes its place by the steps of
// deploy/GROWING.md: the control plane first, which migrates, then one node after the other. Then the earlier build
// comes back, on the database of this build. All the while every request is answered, every node follows orders of
// every control plane, and regions receive each other's counts. In the end each Redis has exactly the cost that its
// nodes accepted.
func TestUpgradeAndBack(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testUpgradeAndBack)
}

func testUpgradeAndBack(t *testing.T) {
	earlier := earlierBuild(t)
	u := &upgrade{t: t, place: t.TempDir()}
	u.install(earlier, "weir-node", "weir-control", "weirctl")
	u.Stack = start(t, func(o *stack.Options) { o.Bin = u.place })
	u.l = startLoad(t, u.Stack, "upgrade_")
	first := u.migration()
	u.rollOut("before", "floor=0.3", "settings_interval_ms=300") // so that the rest takes less time
	u.obeyed("the earlier build everywhere")

	u.replaceControl(bin)
	newest := u.migration()
	if newest <= first && earlier != bin {
		t.Errorf("the database was at migration %d, and is at %d: nothing was migrated", first, newest)
	}
	t.Logf("migrations %d to %d", first, newest)
	u.obeyed("earlier nodes, this control plane")
	u.replaceNode(earlier, u.Nodes[0]) // an earlier node that begins on the newer database
	u.obeyed("an earlier node that was restarted")
	u.replaceNode(bin, u.Nodes[0])
	u.replaceNode(bin, u.Nodes[1])
	u.obeyed("this build's nodes in one region, earlier ones in the other")
	u.replaceNode(bin, u.Nodes[2])
	u.replaceNode(bin, u.Nodes[3])
	u.rollOut("after", "floor=0.4")
	u.obeyed("this build everywhere")

	u.replaceNode(earlier, u.Nodes[0])
	u.obeyed("an earlier node among this build's")
	u.replaceControl(earlier)
	for _, n := range u.Nodes[1:] {
		u.replaceNode(earlier, n)
	}
	u.obeyed("the earlier build everywhere, on the newer database")
	u.rollOut("back", "floor=0.5")
	if got := u.migration(); got != newest {
		t.Errorf("the earlier build left the database at migration %d, and found %d", got, newest)
	}

	u.l.check(t)
	originsHold(t, u.Stack, u.l, "upgrade_", fault{lost: nothing, doubled: retried})
}

// earlierBuild builds the programs of the last commit that did not have the newest migration. If a clone's history does
// not reach that far, it has no earlier build than its own. The same holds if the last migrations rename something: a
// build that uses the former name must end before this build starts.
func earlierBuild(t *testing.T) (dir string) {
	t.Helper()
	root := strings.TrimSpace(command(t, ".", "git", "rev-parse", "--show-toplevel"))
	earlier := earlierCommit(t, root)
	if earlier == "" {
		t.Log("no earlier build can run beside this one: it is replaced by itself")
		return bin
	}
	source, dir := t.TempDir(), t.TempDir()
	command(t, root, "git", "archive", "--format=tar", "--output="+filepath.Join(dir, "source.tar"), earlier)
	command(t, source, "tar", "-xf", filepath.Join(dir, "source.tar"))
	command(t, source, "go", "build", "-o", dir+string(filepath.Separator),
		"./dataplane/cmd/weir-node", "./controlplane/cmd/weir-control", "./controlplane/cmd/weirctl")
	t.Logf("the earlier build is of %s", earlier)
	return dir
}

// earlierCommit returns the last commit whose newest migration differs from the working tree's, which may not be
// committed. It returns "" if there is no such commit, or if a migration since then renames a table or a column.
func earlierCommit(t *testing.T, root string) (commit string) {
	t.Helper()
	newest := newestMigration(command(t, root, "git", "ls-files", "--cached", "--others", "--exclude-standard", "schema"))
	renamed := lastRename(t, root)
	for _, c := range strings.Fields(command(t, root, "git", "rev-list", "HEAD")) {
		had := newestMigration(command(t, root, "git", "ls-tree", "-r", "--name-only", c, "--", "schema"))
		if had < renamed {
			return ""
		}
		if had < newest {
			return c
		}
	}
	return ""
}

var renames = regexp.MustCompile(`(?m)^RENAME TABLE |\bCHANGE COLUMN `)

// lastRename returns the number of the last migration that renames a table or a column; "" if none does.
func lastRename(t *testing.T, root string) (number string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "schema", "*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if renames.Match(text) {
			number = max(number, newestMigration(f))
		}
	}
	return number
}

var migrationFile = regexp.MustCompile(`(?m)/([0-9]{5})_[^/]*\.sql$`)

// newestMigration returns the highest number in file names, a line each.
func newestMigration(files string) (number string) {
	for _, found := range migrationFile.FindAllStringSubmatch(files, -1) {
		number = max(number, found[1])
	}
	return number
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// upgrade is a fleet whose programs are replaced under load.
type upgrade struct {
	*stack.Stack
	t     *testing.T
	place string // where the fleet's programs are started from
	l     *load
	turns int64
}

// install makes new processes start from a build. Running processes go on.
func (u *upgrade) install(build string, programs ...string) {
	u.t.Helper()
	for _, program := range programs {
		link := filepath.Join(u.place, program)
		if err := os.Symlink(filepath.Join(build, program), link+".new"); err != nil {
			u.t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			u.t.Fatal(err)
		}
	}
}

func (u *upgrade) replaceControl(build string) {
	u.t.Helper()
	u.install(build, "weir-control", "weirctl")
	u.replace(u.Control)
}

func (u *upgrade) replaceNode(build string, n *stack.Node) {
	u.t.Helper()
	u.install(build, "weir-node")
	u.replace(n.Program)
}

func (u *upgrade) replace(p *servers.Program) {
	u.t.Helper()
	if err := p.End(40 * time.Second); err != nil {
		u.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(u.t.Context(), await.Patience)
	defer cancel()
	if err := p.Restart(ctx); err != nil {
		u.t.Fatal(err)
	}
	pause(u.t.Context(), 400*time.Millisecond) // callers find it again, as an orchestrator lets them
}

func (u *upgrade) weirctl(args ...string) string {
	u.t.Helper()
	return command(u.t, u.place, filepath.Join(u.place, "weirctl"), append([]string{"--api", u.API()}, args...)...)
}

// obeyed sets an override, by which every node must decide, and uses it up in one region. The other region must receive
// the cost.
func (u *upgrade) obeyed(when string) {
	u.t.Helper()
	u.t.Logf("%v: %s", time.Since(u.l.began).Round(time.Second), when)
	u.weirctl("cleanup", "run", "--actor", "ann", "--reason", when)
	u.turns++
	most, window, key := 3+u.turns, 24*time.Hour, fmt.Sprint("turn-", u.turns)
	u.weirctl("override", "set", "acme", "api", key, "--limit", fmt.Sprint(most), "--duration", "24h", "--actor", "ann", "--reason", when)
	for _, n := range u.Nodes {
		await.True(u.t, when+": "+n.ID+" has the override", func() bool {
			return limit(u.t, n, limitRequest(key, 0, 100, window)).Limit == most
		})
	}
	from, to := u.Nodes[:2], u.Nodes[2:]
	if u.turns%2 == 0 {
		from, to = to, from
	}
	for i := range most {
		if r := limit(u.t, from[i%2], limitRequest(key, 1, 100, window)); !r.Allowed {
			u.t.Errorf("%s: %s denied request %d of %d: %v", when, from[i%2].ID, i+1, most, r)
		}
	}
	for _, n := range u.Nodes {
		await.True(u.t, when+": "+n.ID+" knows what was spent at "+from[0].Region, func() bool {
			return limit(u.t, n, limitRequest(key, 0, 100, window)).Remaining == 0
		})
	}
	if limit(u.t, to[0], limitRequest(key, 1, 100, window)).Allowed {
		u.t.Errorf("%s: %s allowed more than the limit", when, to[0].ID)
	}
}

// rollOut brings a tuning to every node, with the control plane that is running.
func (u *upgrade) rollOut(id string, set ...string) {
	u.t.Helper()
	u.t.Logf("%v: rollout %s", time.Since(u.l.began).Round(time.Second), id)
	plan := filepath.Join(u.place, "plan.json")
	writeFile(u.t, plan, `{"baseline_ms": 1000, "stages": [{"regions": ["eu"], "bake_ms": 1000}, {"all": true, "bake_ms": 1000}], "guardrails": `+onlyTheOrigin+`}`)
	start := []string{"rollout", "start", "--id", id, "--plan", plan, "--actor", "ann", "--reason", "upgrade"}
	for _, value := range set {
		start = append(start, "--set", value)
	}
	u.weirctl(start...)
	var status string
	await.True(u.t, "the rollout "+id+" is done", func() bool {
		status = u.weirctl("rollout", "status", id)
		if strings.Contains(status, "rolled back") || strings.Contains(status, "aborted") {
			u.t.Fatal(status)
		}
		return strings.HasPrefix(status, "rollout "+id+", done")
	})
}

// migration returns the newest migration that the database has had.
func (u *upgrade) migration() (version int64) {
	u.t.Helper()
	if err := database(u.t, u.Stack).QueryRowContext(u.t.Context(), "SELECT MAX(version_id) FROM "+schema.VersionTable).Scan(&version); err != nil {
		u.t.Fatal(err)
	}
	return version
}
