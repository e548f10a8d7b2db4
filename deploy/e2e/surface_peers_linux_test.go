package e2e

import (
	"crypto/tls"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/testcert"
)

// peersArgs let relays of another region in, with a certificate that only they have.
func peersArgs(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	testcert.SelfSigned(t, "eu").Write(t, filepath.Join(dir, "certificate"), filepath.Join(dir, "key"))
	own := filepath.Join(dir, "certificate")
	return []string{"--relay-peers=us=127.0.0.1:1", "--relay-peers-listen=127.0.0.1:0",
		"--relay-peers-cert-file=" + own, "--relay-peers-key-file=" + filepath.Join(dir, "key"), "--relay-peers-ca-file=" + own}
}

// peersListen returns the address at which a node receives calls of other regions' relays, from its log.
func peersListen(t *testing.T, node *stack.Node) (address string) {
	t.Helper()
	await.True(t, "the log says where relays are heard", func() bool {
		logs, err := fs.Glob(os.DirFS(node.Dir()), "*.log")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range logs {
			text, err := os.ReadFile(filepath.Join(node.Dir(), name))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				var event struct {
					Address string `json:"relay_peers_listen"`
				}
				if json.Unmarshal([]byte(line), &event) == nil && event.Address != "" {
					address = event.Address
				}
			}
		}
		return address != ""
	})
	return address
}

// answersWithoutCertificate returns the paths that are answered to a caller without a certificate: all of them if the
// server sends anything after the handshake.
func answersWithoutCertificate(t *testing.T, address string) []string {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if n, err := conn.Read(make([]byte, 1)); n > 0 {
		return []string{"/"}
	} else if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("%s ends a connection without a certificate with %v", address, err)
	}
	return nil
}
