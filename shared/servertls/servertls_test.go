package servertls_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/servertls"
	"github.com/weirhq/weir/shared/testcert"
)

// server is a server whose files a test may change.
type server struct {
	*servertls.TLS
	address                     string
	certificate, key, authority string
}

func serve(t *testing.T, ours *testcert.Authority, callers *testcert.Authority) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{certificate: filepath.Join(dir, "c"), key: filepath.Join(dir, "k")}
	ours.Issue(t).Write(t, s.certificate, s.key)
	if callers != nil {
		s.authority = filepath.Join(dir, "ca")
		put(t, s.authority, callers.PEM)
	}
	var err error
	if s.TLS, err = servertls.Open(s.certificate, s.key, s.authority); err != nil {
		t.Fatal(err)
	}
	s.address = listen(t, s.Config("h2", "http/1.1"))
	return s
}

// listen greets with this configuration until the test ends.
func listen(t *testing.T, config *tls.Config) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer(tls.NewListener(l, config))
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// answer greets each connection and ends it.
func answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("hello"))
		_ = conn.Close()
	}
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// call returns the connection's state, after the server has answered.
func (s *server) call(config *tls.Config) (tls.ConnectionState, error) {
	conn, err := tls.Dial("tcp", s.address, config)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		return tls.ConnectionState{}, err
	}
	return conn.ConnectionState(), nil
}

func TestProtocolsAndTheCertificateOfNow(t *testing.T) {
	ours := testcert.New(t)
	s := serve(t, ours, nil)
	config := &tls.Config{RootCAs: ours.Pool(), NextProtos: []string{"h2"}}
	next := ours.Issue(t)
	for _, step := range []struct {
		change func()
		want   bool // the next certificate
	}{
		{func() {}, false},
		{func() { put(t, s.key, []byte("no key")) }, false},
		{func() { next.Write(t, s.certificate, s.key) }, true},
	} {
		step.change()
		_, _ = s.Check()
		state, err := s.call(config)
		if err != nil || state.NegotiatedProtocol != "h2" {
			t.Fatalf("%q, %v", state.NegotiatedProtocol, err)
		}
		if got := state.PeerCertificates[0].SerialNumber.Cmp(next.Serial(t)) == 0; got != step.want {
			t.Errorf("the next certificate: %v, want %v", got, step.want)
		}
	}
}

// If an authority is no longer trusted, its certificates open no connection, and sessions from before do not either.
func TestAWithdrawnAuthorityEndsItsSessions(t *testing.T) {
	ours, old, next := testcert.New(t), testcert.New(t), testcert.New(t)
	s := serve(t, ours, old)
	pair, err := tls.X509KeyPair(func() ([]byte, []byte) { p := old.Issue(t); return p.Certificate, p.Key }())
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		put(t, s.authority, old.PEM)
		_, _ = s.Check()
		config := &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{pair}, MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		for _, resumed := range []bool{false, true} {
			if state, err := s.call(config); err != nil || state.DidResume != resumed {
				t.Fatalf("version %x: %v, resumed %v, want %v", version, err, state.DidResume, resumed)
			}
		}
		put(t, s.authority, next.PEM)
		if changed, err := s.Check(); !changed || err != nil {
			t.Fatalf("%v, %v", changed, err)
		}
		if state, err := s.call(config); err == nil {
			t.Errorf("version %x: connected, resumed %v", version, state.DidResume)
		}
	}
}

func TestFilesAtFaultAreNamed(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	testcert.SelfSigned(t).Write(t, path("c"), path("k"))
	put(t, path("none"), []byte("none"))
	for _, step := range []struct{ certificate, key, authority, says string }{
		{"none", "k", "", path("none")},
		{"c", "none", "", path("none")},
		{"c", "k", "none", "holds no certificate of an authority"},
		{"c", "missing", "", path("missing")},
	} {
		authority := step.authority
		if authority != "" {
			authority = path(authority)
		}
		opened, err := servertls.Open(path(step.certificate), path(step.key), authority)
		if err == nil || opened != nil || !strings.Contains(err.Error(), step.says) {
			t.Errorf("%+v: %v", step, err)
		}
	}
	if _, err := servertls.Open(path("missing"), path("k"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A port for all requires no certificate, next to a port that does. Both reject old versions of TLS.
func TestPortsForAllAndVersions(t *testing.T) {
	ours, callers := testcert.New(t), testcert.New(t)
	for _, c := range []struct {
		least, callersMost uint16
		forAll, want       bool
	}{
		{0, tls.VersionTLS12, true, true},
		{0, tls.VersionTLS11, true, false},
		{tls.VersionTLS10, tls.VersionTLS11, true, false},
		{tls.VersionTLS13, tls.VersionTLS12, true, false},
		{tls.VersionTLS13, tls.VersionTLS13, true, true},
		{0, tls.VersionTLS13, false, false},
	} {
		s := serve(t, ours, callers)
		s.VersionMin = c.least
		if c.forAll {
			s.address = listen(t, s.ConfigForAll("h2"))
		} else {
			s.address = listen(t, s.Config("h2"))
		}
		_, err := s.call(&tls.Config{RootCAs: ours.Pool(), MinVersion: tls.VersionTLS10, MaxVersion: c.callersMost})
		if (err == nil) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// "ConfigForAll is Config for a port that requires no certificate of callers": a session from that port opens no other
// port.
func TestAPortForAllOpensNoOther(t *testing.T) {
	ours := testcert.New(t)
	s := serve(t, ours, testcert.New(t))
	asking, nobody := s.address, &tls.Config{RootCAs: ours.Pool()}
	s.address = listen(t, s.ConfigForAll("h2"))
	if _, err := s.call(nobody); err != nil {
		t.Fatal(err)
	}
	s.address = asking
	if _, err := s.call(nobody); err == nil {
		t.Error("a caller without a certificate is taken")
	}
}
