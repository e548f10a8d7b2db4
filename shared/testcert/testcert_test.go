package testcert_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"testing"

	"github.com/weirhq/weir/shared/testcert"
)

func parse(t *testing.T, p testcert.Pair) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(p.Certificate, p.Key); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(p.Certificate)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestIssuedCertificatesAreTrustedForTheirNamesAlone(t *testing.T) {
	a, other := testcert.New(t), testcert.New(t)
	c := parse(t, a.Issue(t, "x.test"))
	for _, step := range []struct {
		name string
		pool *x509.CertPool
		good bool
	}{{"x.test", a.Pool(), true}, {"y.test", a.Pool(), false}, {"x.test", other.Pool(), false}} {
		_, err := c.Verify(x509.VerifyOptions{DNSName: step.name, Roots: step.pool})
		if (err == nil) != step.good {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

func TestSelfSignedCertificatesAreTheirOwnAuthority(t *testing.T) {
	p := testcert.SelfSigned(t)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p.Certificate) {
		t.Fatal("no certificate")
	}
	if _, err := parse(t, p).Verify(x509.VerifyOptions{DNSName: "127.0.0.1", Roots: pool}); err != nil {
		t.Error(err)
	}
}

func TestPairsAreWrittenAndApart(t *testing.T) {
	p, q := testcert.SelfSigned(t), testcert.SelfSigned(t)
	if p.Serial(t).Cmp(q.Serial(t)) == 0 {
		t.Error("two certificates have the same serial number")
	}
	certificate, key := filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")
	p.Write(t, certificate, key)
	if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
		t.Error(err)
	}
}
