package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
)

// issue writes a certificate for loopback, its own authority, over those that are there.
func issue(t *testing.T, dir string, serial int64) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "api.pem"), filepath.Join(dir, "api.key")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// "Callers then speak https. Read again when it changes": the program serves one
// certificate, goes on with it while the files are wrong, and then serves the next.
func TestServesHTTPSAndReadsTheCertificateAgain(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DSN", "weir:s3cret@tcp(127.0.0.1:1)/weir")
	dir := t.TempDir()
	certificate, key := issue(t, dir, 1)
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, stop: stop, exited: make(chan int, 1)}
	args := []string{"--api-listen", "127.0.0.1:0", "--handlers-listen", "127.0.0.1:0", "--api-tls-cert", certificate, "--api-tls-key", key,
		"--restate-ingress", "http://127.0.0.1:1", "--restate-admin", "http://127.0.0.1:1"}
	go func() { r.exited <- run(ctx, args, io.Discard, r) }()
	t.Cleanup(stop)
	address := ""
	await.NoError(t, "it serves", func() error {
		for line := range strings.Lines(r.logged()) {
			var l struct{ Msg, API string }
			if err := json.Unmarshal([]byte(line), &l); err == nil && l.Msg == "serving" {
				address = l.API
				return nil
			}
		}
		return errors.New(r.logged())
	})
	shows := func(serial int64) func() error {
		return func() error {
			// what it shows is looked at below
			conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if got := conn.ConnectionState().PeerCertificates[0].SerialNumber; got.Int64() != serial {
				return fmt.Errorf("certificate %v", got)
			}
			return nil
		}
	}
	if err := shows(1)(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certificate, []byte("half of a"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "it tells of the broken file", func() error {
		if !strings.Contains(r.logged(), "going on with the last good one") {
			return errors.New("it does not")
		}
		return shows(1)()
	})
	issue(t, dir, 2)
	await.NoError(t, "it serves the next certificate", shows(2))
	r.drain()
}
