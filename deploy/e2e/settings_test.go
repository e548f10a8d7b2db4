package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
)

const reviewed = `kind: weir-settings
version: 1
namespaces:
  - {workspace: "acme", namespace: "api", mode: "exact", outage: "open", node_share: "flush", window: "precise"}
  - {workspace: "acme", namespace: "trial", mode: "exact", outage: "local", node_share: "flush", shadow: true}
overrides:
  - {workspace: "acme", namespace: "api", pattern: "user_*", limit: 3}
`

// Settings that are applied to a fleet are in force there. When they are exported, a node without MySQL and Redis
// decides the same way by the file. When the file changes, so do its decisions.
func TestSettingsTravelAsADocument(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSettingsTravelAsADocument)
}

func testSettingsTravelAsADocument(t *testing.T) {
	s, window := start(t), roomyWindow()
	dir := t.TempDir()
	source, path := filepath.Join(dir, "reviewed.yaml"), filepath.Join(dir, "exported.yaml")
	writeFile(t, source, reviewed)
	weirctl(t, s.API(), "apply", "-f", source, "--actor", "ann", "--reason", "reviewed")
	for _, n := range s.Nodes {
		await.True(t, n.ID+" has the override", func() bool { return limit(t, n, limitRequest("user_42", 0, 10, window)).Limit == 3 })
	}
	weirctl(t, s.API(), "export", "-f", path)
	if text, err := os.ReadFile(path); err != nil || string(text) != reviewed {
		t.Fatalf("%v\n%s", err, text)
	}

	node := startAlone(t, "--settings-file="+path)
	ask := func(cost int64) *weirv1.LimitResponse {
		res, err := node.Limit(t.Context(), connect.NewRequest(limitRequest("user_42", cost, 10, window)))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg
	}
	if r := ask(3); !r.Allowed || r.Limit != 3 || r.Override != "user_*" {
		t.Errorf("%v", r)
	}
	if r := ask(1); r.Allowed {
		t.Errorf("%v", r)
	}
	writeFile(t, path, strings.Replace(reviewed, "limit: 3", "limit: 5", 1))
	await.True(t, "the file's new limit is in force", func() bool { return ask(0).Limit == 5 })
	if r := ask(2); !r.Allowed {
		t.Errorf("with the new limit: %v", r)
	}
	if r := ask(1); r.Allowed {
		t.Errorf("past the new limit: %v", r)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func weirctl(t *testing.T, api string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, filepath.Join(bin, "weirctl"), append([]string{"--api", api}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("weirctl %v: %v\n%s", args, err, out)
	}
}

// startAlone starts a weir-node outside of any stack, and ends it with the test.
func startAlone(t *testing.T, args ...string) weirv1connect.RateLimitServiceClient {
	t.Helper()
	var log await.Log
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "weir-node"),
		append(args, "--listen=127.0.0.1:0", "--grpc-listen=", "--admin-listen=127.0.0.1:0")...)
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // t.Context has ended it by now
	address := ""
	await.True(t, "the node's log says where it serves", func() bool {
		address = servingIn(log.String())
		return address != ""
	})
	return weirv1connect.NewRateLimitServiceClient(http.DefaultClient, "http://"+address)
}

// servingIn returns the address that a log names, or "".
func servingIn(log string) string {
	for line := range strings.Lines(log) {
		var event struct{ Msg, Listen string }
		if json.Unmarshal([]byte(line), &event) == nil && event.Msg == "serving" {
			return event.Listen
		}
	}
	return ""
}
