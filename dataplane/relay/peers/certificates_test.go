package peers_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/shared/testcert"
)

// files are the paths of a relay's certificate, key and authorities.
type files [3]string

func newFiles(t testing.TB) files {
	dir := t.TempDir()
	return files{filepath.Join(dir, "relay.pem"), filepath.Join(dir, "relay.key"), filepath.Join(dir, "authorities.pem")}
}

// write issues a certificate for names by a, and trusts the given authorities.
func (f files) write(t testing.TB, a *testcert.Authority, names []string, trusted ...*testcert.Authority) {
	a.Issue(t, names...).Write(t, f[0], f[1])
	var authorities []byte
	for _, one := range trusted {
		authorities = append(authorities, one.PEM...)
	}
	if err := os.WriteFile(f[2], authorities, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f files) open(t testing.TB) *peers.TLS {
	opened, err := peers.OpenTLS(f[0], f[1], f[2])
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// issued returns a TLS with a certificate for names by a, which trusts only a.
func issued(t testing.TB, a *testcert.Authority, names ...string) *peers.TLS {
	f := newFiles(t)
	f.write(t, a, names, a)
	return f.open(t)
}

// replace replaces the content of the file with the given name.
func (f files) replace(t testing.TB, name string, content []byte) {
	for _, path := range f {
		if filepath.Base(path) == name {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// writeServerOnly writes a certificate that servers reject from a client.
func (f files) writeServerOnly(t testing.TB, a *testcert.Authority) {
	a.IssueLike(t, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "x").Write(t, f[0], f[1])
}
