package nodecmd

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node"
)

// A program's errors have its own name, and the other server's names of settings.
func TestAProgramsFaults(t *testing.T) {
	p := Program{Name: "weir-other", CallsPublic: true, Settings: map[string]string{"listen": "OTHER_HTTP",
		"entries-max": "OTHER_SIZE"}}
	var stdout, stderr bytes.Buffer
	args := []string{"--listen=80", "--grpc-listen=:1", "--admin-listen=:2", "--entries-max=0"}
	code := p.Main(t.Context(), args, &stdout, &stderr)
	want := `weir-other: OTHER_HTTP is "80": want host:port, and an IPv6 address in brackets
weir-other: admin-listen is ":2": other machines`
	if says := stderr.String(); code != exitUsage || !strings.HasPrefix(says, want) ||
		!strings.Contains(says, "\nweir-other: OTHER_SIZE is 0 (1 to") || strings.Contains(says, "grpc-listen") {
		t.Errorf("exit code %d\n%s", code, says)
	}
	code = p.Main(t.Context(), []string{"--version"}, &stdout, &stderr)
	if code != exitOK || stdout.String() != "weir-other "+Build()+"\n" {
		t.Errorf("exit code %d, %s", code, stdout.String())
	}
}

// An API that cannot be made ends the start.
func TestAProgramWithoutItsAPI(t *testing.T) {
	none := func(*dataplane.Limiter) (*node.API, error) { return nil, errors.New("no way") }
	args := []string{"--listen=127.0.0.1:0", "--grpc-listen=", "--admin-listen=127.0.0.1:0"}
	var stdout, stderr bytes.Buffer
	code := Program{Name: "weir-other", API: none}.Main(t.Context(), args, &stdout, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "make the API: no way") {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
}
