package main

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/shared/servertls"
	"github.com/weirhq/weir/shared/testcert"
)

// The API uses TLS with certificates on both sides. A client that does not trust the server, or that the server does
// not trust, is rejected. A new certificate applies to the next connection, unless it is unusable.
func TestTLS(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	testcert.SelfSigned(t).Write(t, path("api.pem"), path("api.key"))
	testcert.SelfSigned(t).Write(t, path("ann.pem"), path("ann.key"))
	certificate, err := servertls.Open(path("api.pem"), path("api.key"), path("ann.pem"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := api.NewServer(w.handler, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(tls.NewListener(l, certificate.Config("h2", "http/1.1"))) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	w.url = "https://" + l.Addr().String()
	const refused = -1 // a caller learns it with the handshake or with its first write
	try := func(name string, code int, says string, args ...string) {
		t.Helper()
		if got := w.run(t, append([]string{"fleet"}, args...)...); got != code && !(code == refused && got != exitOK) || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("%s: exit %d, want %d; %s", name, got, code, w.stderr.String())
		}
	}
	known := []string{"--ca", path("api.pem"), "--cert", path("ann.pem"), "--key", path("ann.key")}
	try("both known", exitOK, "", known...)
	try("an API that is not known", exitUnreachable, "certificate", "--cert", path("ann.pem"), "--key", path("ann.key"))
	try("a caller without a certificate", refused, "", "--ca", path("api.pem"))
	try("a caller of another authority", refused, "", "--ca", path("api.pem"), "--cert", path("api.pem"), "--key", path("api.key"))
	try("half of a pair", exitUsage, "--cert and --key go together", "--cert", path("ann.pem"))
	try("no file", exitUsage, "--ca: open", "--ca", path("none"))
	try("no certificate", exitUsage, "holds no certificate", "--ca", path("ann.key"))

	testcert.SelfSigned(t).Write(t, path("api.pem"), path("api.key"))
	if changed, err := certificate.Check(); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	try("the new certificate", exitOK, "", known...)
	if err := os.WriteFile(path("api.key"), []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := certificate.Check(); err == nil || !strings.Contains(err.Error(), "api.key") {
		t.Errorf("%v", err)
	}
	try("the last good one", exitOK, "", known...)
	res, err := http.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	if _ = res.Body.Close(); res.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS: %s", res.Status)
	}
	http.DefaultClient.CloseIdleConnections()
}
