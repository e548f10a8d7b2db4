package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/testcert"
)

// "The API then serves HTTPS only. Read again when it changes": the program serves a certificate, goes on with it while
// the files are invalid, and then serves the next certificate.
func TestServesHTTPSAndReadsTheCertificateAgain(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DSN", "weir:s3cret@tcp(127.0.0.1:1)/weir")
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "api.pem"), filepath.Join(dir, "api.key")
	first, next := testcert.SelfSigned(t), testcert.SelfSigned(t)
	first.Write(t, certificate, key)
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, stop: stop, exited: make(chan int, 1)}
	args := []string{"--api-listen", "127.0.0.1:0", "--handlers-listen", "127.0.0.1:0", "--api-tls-cert", certificate, "--api-tls-key", key,
		"--restate-ingress", "http://127.0.0.1:1", "--restate-admin", "http://127.0.0.1:1"}
	go func() { r.exited <- run(ctx, args, io.Discard, &r.log) }()
	t.Cleanup(stop)
	address := ""
	await.NoError(t, "it serves", func() error {
		for line := range strings.Lines(r.log.String()) {
			var l struct{ Msg, API string }
			if err := json.Unmarshal([]byte(line), &l); err == nil && l.Msg == "serving" {
				address = l.API
				return nil
			}
		}
		return errors.New(r.log.String())
	})
	shows := func(p testcert.Pair) func() error {
		return func() error {
			// the certificate is checked below
			conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if got := conn.ConnectionState().PeerCertificates[0].SerialNumber; got.Cmp(p.Serial(t)) != 0 {
				return fmt.Errorf("certificate %v", got)
			}
			return nil
		}
	}
	if err := shows(first)(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certificate, []byte("half of a"), 0o600); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "it tells of the broken file", func() error {
		if !strings.Contains(r.log.String(), "the previous one stays in force") {
			return errors.New("it does not")
		}
		return shows(first)()
	})
	next.Write(t, certificate, key)
	await.NoError(t, "it serves the next certificate", shows(next))
	r.drain()
}
