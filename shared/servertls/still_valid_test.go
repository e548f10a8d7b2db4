package servertls_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servertls"
	"github.com/weirhq/weir/shared/testcert"
)

func parsed(t testing.TB, content []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(content)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A connection's certificate is accepted as long as a new connection with it, its chain and its authority would be.
func TestAConnectionIsAsValidAsItsCertificate(t *testing.T) {
	ours, theirs, folder := testcert.New(t), testcert.New(t), t.TempDir()
	paths := []string{filepath.Join(folder, "cert"), filepath.Join(folder, "key"), filepath.Join(folder, "ca")}
	ours.Issue(t).Write(t, paths[0], paths[1])
	accept := func(authorities ...*testcert.Authority) {
		t.Helper()
		var all []byte
		for _, a := range authorities {
			all = append(all, a.PEM...)
		}
		if err := os.WriteFile(paths[2], all, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	accept(ours, theirs)
	files, err := servertls.Open(paths[0], paths[1], paths[2])
	if err != nil {
		t.Fatal(err)
	}
	ends := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	chain := []*x509.Certificate{
		parsed(t, theirs.IssueLike(t, func(c *x509.Certificate) { c.NotAfter = ends }, "client").Certificate),
		parsed(t, theirs.PEM)}
	state := &tls.ConnectionState{PeerCertificates: chain[:1], VerifiedChains: [][]*x509.Certificate{chain}}
	before, after := ends.Add(-time.Hour), ends.Add(time.Second)
	if err := files.StillValid(state, before); err != nil {
		t.Errorf("before its end: %v", err)
	}
	if err := files.StillValid(state, after); !errors.Is(err, servertls.ErrExpired) {
		t.Errorf("after its end: %v", err)
	}
	if got := files.ValidUntil(state); !got.Equal(ends) {
		t.Errorf("it is valid until %v, want %v", got, ends)
	}
	if err := files.StillValid(nil, before); err == nil {
		t.Error("a connection without a certificate is valid")
	}
	allocated := testing.AllocsPerRun(100, func() { _ = files.StillValid(state, before) })
	if allocated > 0 {
		t.Errorf("%v allocations a call", allocated)
	}
	served := files.OnlyValid(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	status := func() (int, string) {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{parsed(t, theirs.Issue(t, "c").Certificate),
			parsed(t, theirs.PEM)}}}
		served.ServeHTTP(w, r)
		return w.Code, w.Header().Get("Connection")
	}
	if code, _ := status(); code != http.StatusOK {
		t.Errorf("a request: %d", code)
	}
	version := files.Version()
	accept(ours)
	if _, err := files.Check(); err != nil {
		t.Fatal(err)
	}
	if err := files.StillValid(state, before); !errors.Is(err, servertls.ErrAuthority) || files.Version() == version {
		t.Errorf("its authority was taken out: %v, version %d after %d", err, files.Version(), version)
	}
	if code, connection := status(); code != http.StatusServiceUnavailable || connection != "close" {
		t.Errorf("a request: %d, Connection: %q", code, connection)
	}
	plain, err := servertls.Open(paths[0], paths[1], "")
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.StillValid(nil, after); err != nil || !plain.ValidUntil(state).IsZero() {
		t.Errorf("without authorities for callers: %v", err)
	}
}
