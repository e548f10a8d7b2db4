// Package console drives a real browser through the operators' console, before all of
// Weir on real servers.
package console

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/deploy/local/stack"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/servers"
)

const adminToken = "an admin's token for the console's tests"

// world has the addresses and credentials for drive.js.
type world struct {
	Chromium string            `json:"chromium"`
	URL      string            `json:"url"`
	Tokens   map[string]string `json:"tokens"`
	Nodes    []string          `json:"nodes"`
	Regions  []string          `json:"regions"`
	Pages    map[string]string `json:"pages"`
	Shots    string            `json:"shots"`
}

// The console as people use it, in Chromium, with real servers behind it. The scenarios share a fleet, and each is
// described in browser/drive.js.
func TestTheConsoleInChromium(t *testing.T) { servers.TurnSQL(t, testTheConsoleInChromium) }

func testTheConsoleInChromium(t *testing.T) {
	s := start(t)
	w := world{
		Chromium: chromium(t), URL: s.API(), Regions: []string{"eu", "us"}, Tokens: tokens(t, s), Shots: shots(t),
		Pages: map[string]string{
			"fleet": "/console/", "region": "/console/regions/eu", "rollouts": "/console/rollouts", "rollout-new": "/console/rollouts/new",
			"rollout-limits": "/console/rollouts/limits?workspace=acme&namespace=api",
			"rollout":        "/console/rollouts/at/breach", "limits": "/console/limits?workspace=acme", "namespace": "/console/limits/namespace?workspace=acme&namespace=api",
			"keys": "/console/keys?workspace=acme&namespace=api&identifier=user_1", "health": "/console/health?check=1", "audit": "/console/audit",
			"usage": "/console/usage?usage=90d", "namespace-live": "/console/limits/namespace?workspace=acme&namespace=api&usage=live",
			"jobs": "/console/jobs", "tokens": "/console/tokens", "not-found": "/console/nowhere",
		},
	}
	for _, n := range s.Nodes {
		w.Nodes = append(w.Nodes, n.URL())
	}
	for _, scenario := range []string{"theme", "live", "jobs", "limits", "audit", "keys", "retirement", "viewer", "plan", "difference", "stricter", "breach", "tour"} {
		t.Run(scenario, func(t *testing.T) { drive(t, scenario, w) })
	}
	if err := s.Redis["eu"].Kill(); err != nil {
		t.Fatal(err)
	}
	t.Run("outage", func(t *testing.T) { drive(t, "outage", w) })
}

func drive(t *testing.T, scenario string, w world) {
	t.Helper()
	told, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "node", "browser/drive.js", scenario, string(told)).CombinedOutput()
	if err != nil {
		t.Errorf("%v (without its packages: run `make setup`)\n%s", err, out)
	}
}

// start runs everything, with an API that requires tokens.
func start(t *testing.T) *stack.Stack {
	t.Helper()
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+string(filepath.Separator), "github.com/weirhq/weir/dataplane/cmd/weir-node", "github.com/weirhq/weir/controlplane/cmd/weir-control")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "admin-token")
	if err := os.WriteFile(file, []byte(adminToken), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := stack.Start(ctx, stack.Options{Bin: bin, Engine: servers.EngineOf(t), Redis: servers.RedisKindOf(t),
		Data: t.TempDir(), CleanupInterval: 2 * time.Second, ControlArgs: []string{"--api-auth=token", "--api-admin-token-file=" + file}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tokens makes a token for each role.
func tokens(t *testing.T, s *stack.Stack) map[string]string {
	t.Helper()
	client := controlv1connect.NewTokenServiceClient(http.DefaultClient, s.API())
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	made := map[string]string{"admin": adminToken}
	for _, role := range []string{"viewer", "operator"} {
		req := connect.NewRequest(&controlv1.CreateTokenRequest{Reason: "tests", Name: "test-" + role, Role: role})
		req.Header().Set("Authorization", "Bearer "+adminToken)
		answer, err := client.CreateToken(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		made[role] = answer.Msg.GetSecret()
	}
	return made
}

// chromium returns the path of the browser: CHROMIUM_BIN, or an installed browser.
func chromium(t testing.TB) string {
	t.Helper()
	if named := os.Getenv("CHROMIUM_BIN"); named != "" {
		return named
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: run `make setup`", err)
	}
	return path
}

// shots returns the folder for pictures of the pages, for people to look at.
func shots(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "out", "screenshots"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The driver is pinned, and installable from whichever registry npm is configured for.
func TestTheDriverIsPinned(t *testing.T) {
	manifest, err := os.ReadFile("browser/package.json")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`"playwright-core": "\d+\.\d+\.\d+"`).Match(manifest) {
		t.Errorf("not pinned exactly:\n%s", manifest)
	}
	lock, err := os.ReadFile("browser/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(lock), `"resolved"`) {
		t.Error("package-lock.json names where packages come from")
	}
}
