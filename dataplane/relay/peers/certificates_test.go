package peers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/relay/peers"
)

// authority signs certificates of relays.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

var (
	notBefore = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // a synctest bubble begins in 2000
	notAfter  = time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)
	bothEnds  = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

func newAuthority(t testing.TB) *authority {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relays"}, NotBefore: notBefore, NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a := &authority{certificate: template, key: newKey(t)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.certificate, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign issues a certificate to names.
func (a *authority) sign(t testing.TB, usage []x509.ExtKeyUsage, names ...string) (certificate, key []byte) {
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: notBefore, NotAfter: notAfter,
		DNSNames: names, ExtKeyUsage: usage, KeyUsage: x509.KeyUsageDigitalSignature}
	private := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// files are a relay's certificate, key and authorities.
type files [3]string

func newFiles(t testing.TB) files {
	dir := t.TempDir()
	return files{filepath.Join(dir, "relay.pem"), filepath.Join(dir, "relay.key"), filepath.Join(dir, "authorities.pem")}
}

// write issues a certificate by a to names, and trusts the certificates of the authorities.
func (f files) write(t testing.TB, a *authority, names []string, trusted ...*authority) {
	certificate, key := a.sign(t, bothEnds, names...)
	var authorities []byte
	for _, one := range trusted {
		authorities = append(authorities, one.pem...)
	}
	for i, content := range [][]byte{certificate, key, authorities} {
		if err := os.WriteFile(f[i], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (f files) open(t testing.TB) *peers.TLS {
	opened, err := peers.OpenTLS(f[0], f[1], f[2])
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// issued is a relay's TLS with a certificate by a to names, and trust in a alone.
func issued(t testing.TB, a *authority, names ...string) *peers.TLS {
	f := newFiles(t)
	f.write(t, a, names, a)
	return f.open(t)
}

// replace writes another content to the file with this name.
func (f files) replace(t testing.TB, name string, content []byte) {
	for _, path := range f {
		if filepath.Base(path) == name {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// writeServerOnly writes a certificate that callers refuse to take from a client.
func (f files) writeServerOnly(t testing.TB, a *authority) {
	certificate, key := a.sign(t, bothEnds[:1], "x")
	f.replace(t, "relay.pem", certificate)
	f.replace(t, "relay.key", key)
}
