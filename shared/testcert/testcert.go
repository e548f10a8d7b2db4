// Package testcert issues certificates for tests:
//
//	a := testcert.New(t)
//	a.Issue(t, "redis.test").Write(t, "redis.pem", "redis.key")
//
// They hold for all times, also in a bubble of testing/synctest, whose clock begins in 2000, and for both ends of a
// connection.
//
// When not to use it: outside of tests.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Certificate, Key []byte }

// Write writes both to files that only their owner can read.
func (p Pair) Write(t testing.TB, certificate, key string) {
	t.Helper()
	for path, content := range map[string][]byte{certificate: p.Certificate, key: p.Key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Authority signs certificates.
type Authority struct {
	PEM []byte // its own certificate

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes an authority that nothing else trusts.
func New(t testing.TB) *Authority {
	t.Helper()
	template := leaf("authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a := &Authority{key: newKey(t)}
	der := sign(t, template, template, &a.key.PublicKey, a.key)
	var err error
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.PEM = encode("CERTIFICATE", der)
	return a
}

// Pool trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Issue signs a certificate for the DNS names; without names it is for 127.0.0.1.
func (a *Authority) Issue(t testing.TB, names ...string) Pair {
	t.Helper()
	return a.IssueLike(t, nil, names...)
}

// IssueLike is Issue with changes by change before the certificate is signed.
func (a *Authority) IssueLike(t testing.TB, change func(*x509.Certificate), names ...string) Pair {
	t.Helper()
	template, key := leaf(names...), newKey(t)
	if change != nil {
		change(template)
	}
	return pair(t, sign(t, template, a.certificate, &key.PublicKey, a.key), key)
}

// SelfSigned issues a certificate for the DNS names, or for 127.0.0.1, that is its own authority.
func SelfSigned(t testing.TB, names ...string) Pair {
	t.Helper()
	template, key := leaf(names...), newKey(t)
	template.IsCA, template.BasicConstraintsValid = true, true
	return pair(t, sign(t, template, template, &key.PublicKey, key), key)
}

// Serial returns the serial number of p's certificate. Each certificate has another number.
func (p Pair) Serial(t testing.TB) *big.Int {
	t.Helper()
	block, _ := pem.Decode(p.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate.SerialNumber
}

func leaf(names ...string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // never fails
	c := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		NotBefore:    time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames:     names,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(names) == 0 {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	} else {
		c.Subject = pkix.Name{CommonName: names[0]}
	}
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func pair(t testing.TB, der []byte, key *ecdsa.PrivateKey) Pair {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{encode("CERTIFICATE", der), encode("PRIVATE KEY", private)}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
