package nodecmd

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/servers"
)

// test.js checks the promises to users of the npm packages. It also describes the modes.

const clientToken = "sk_client"

// speak runs the packages' tests against a node.
func speak(t *testing.T, mode, url string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "node", "testdata/clients/test.js", mode, url, clientToken).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v (without its packages: run `make setup`)\n%s", mode, err, out)
	}
}

// tokens writes a file with the packages' token only.
func tokens(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, fmt.Appendf(nil, "%x clients\n", sha256.Sum256([]byte(clientToken))), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--tokens-file=" + path
}

// A node without stores keeps overrides in memory. The test covers all routes, and every error that a caller can cause.
func TestClientsOfANodeAlone(t *testing.T) {
	c := begin(t, tokens(t), "--v2-overrides")
	speak(t, "all", c.listen)
	c.endWell(t)
}

// The same with MySQL, for a user with only the grants in schema/README.md. In an outage of MySQL limits are still
// decided, and calls about overrides return an error.
func TestClientsWithMySQL(t *testing.T) { servers.EachSQL(t, testClientsWithMySQL) }

func testClientsWithMySQL(t *testing.T) {
	maria := servers.SQLForTest(t)
	grantNode(t, maria, "weir_v2")
	proxy := servers.ProxyForTest(t, maria.Addr())
	t.Setenv("WEIR_MYSQL_DSN", "weir_node:change me@tcp("+proxy.Addr()+")/weir_v2")
	c := begin(t, tokens(t), "--region=eu", "--v2-overrides", "--v2-workspace=acme")
	speak(t, "all", c.listen)
	proxy.Cut()
	speak(t, "down", c.listen)
	if err := proxy.Heal(); err != nil {
		t.Fatal(err)
	}
	c.endWell(t)
}

// The tests of weir-node's own clients run against a node, and against servers that respond incorrectly.
func TestTheJavaScriptClient(t *testing.T) { speakOwn(t, "../clients/js", "node", "--test") }

func TestThePythonClient(t *testing.T) {
	speakOwn(t, "../clients/python", "python3", "-W", "error", "-B", "-m", "unittest")
}

func speakOwn(t *testing.T, dir string, command ...string) {
	t.Helper()
	c := begin(t, tokens(t))
	test := exec.CommandContext(t.Context(), command[0], command[1:]...)
	test.Dir = dir
	test.Env = append(os.Environ(), "WEIR_URL="+c.listen, "WEIR_TOKEN="+clientToken)
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("%v (without %s: run `make setup`)\n%s", err, command[0], out)
	}
	c.end()
}

// Without v2-overrides, the error of the routes for overrides describes how to enable them.
func TestClientsWithoutOverrides(t *testing.T) {
	c := begin(t, tokens(t))
	speak(t, "off", c.listen)
	c.end()
}

// Overrides must not be stored in the memory of only one of several nodes.
func TestOverridesNeedAStore(t *testing.T) {
	_, _, err := parse("--region=eu", "--redis-url=redis://127.0.0.1:1", "--v2-overrides")
	wantError(t, err, "v2-overrides", "mysql-dsn")
	_, _, err = parse("--v2-workspace=" + strings.Repeat("x", 192))
	wantError(t, err, "v2-workspace", "192 bytes")
}

// The packages are pinned, and installable from whichever registry npm is configured for.
func TestClientPackagesArePinned(t *testing.T) {
	manifest, err := os.ReadFile("testdata/clients/package.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := regexp.MustCompile(`"@unkey/\w+": "\d+\.\d+\.\d+"`).FindAllString(string(manifest), -1); len(got) != 2 {
		t.Errorf("pinned exactly: %q, want two packages", got)
	}
	lock, err := os.ReadFile("testdata/clients/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(lock), `"resolved"`) {
		t.Error("package-lock.json names where packages come from")
	}
}

// grantNode makes a database with the tables, and the user of a node that changes
// overrides.
func grantNode(t *testing.T, maria *servers.SQL, database string) {
	t.Helper()
	maria.CreateForTest(t, database)
	db := schematest.Open(t, maria.DSN(database), mysqlcounts.Open)
	readme, err := os.ReadFile("../../../schema/README.md")
	if err != nil {
		t.Fatal(err)
	}
	granted := 0
	for line := range strings.Lines(string(readme)) {
		statement := strings.TrimSuffix(strings.TrimSpace(line), ";")
		if !strings.Contains(statement, "'weir_node'@'%'") {
			continue
		}
		granted++
		if _, err := db.ExecContext(t.Context(), strings.ReplaceAll(statement, " weir.", " "+database+".")); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if granted != 17 {
		t.Fatalf("%d statements about weir_node in schema/README.md, want 17", granted)
	}
}
