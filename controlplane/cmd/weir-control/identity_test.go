package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/await"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/servers"
)

// "If the file does not exist, it is created with a new key, readable by its owner only". An existing file is kept.
func TestIdentityKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "identity.pem")
	code, first, stderr := tried(t, "identity-key", "--out", path)
	if code != exitOK || !strings.HasPrefix(first, "publickeyv1_") || stderr != "" {
		t.Fatalf("exit %d, %q, %s", code, first, stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if code, again, _ := tried(t, "identity-key", "--out", path); code != exitOK || again != first {
		t.Errorf("exit %d, %q after %q", code, again, first)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no file named":   {nil, exitUsage, "missing flags: --out=FILE"},
		"no directory":    {[]string{"--out", filepath.Join(path, "x", "y")}, exitFailure, "not a directory"},
		"no PEM":          {[]string{"--out", file(t, "secret")}, exitFailure, "is not a PEM file"},
		"no private key":  {[]string{"--out", file(t, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")}, exitFailure, "asn1"},
		"of another kind": {[]string{"--out", file(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))}, exitFailure, "Restate signs with ed25519"},
	} {
		code, stdout, stderr := tried(t, append([]string{"identity-key"}, tc.args...)...)
		if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.says) {
			t.Errorf("%s: exit %d, %q, %s", name, code, stdout, stderr)
		}
	}
	if code, stdout, _ := tried(t, "identity-key", "--help"); code != exitOK || !strings.Contains(stdout, "--restate-identity-key") {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

// "With it refuses what your Restate has not signed": Restate accepts the form of the private key, and calls that
// another key signed are rejected.
func TestRestateSignsItsRequests(t *testing.T) { servers.EachSQL(t, testRestateSignsItsRequests) }

func testRestateSignsItsRequests(t *testing.T) {
	mysql := servers.SQLForTest(t)
	mysql.CreateForTest(t, "weir")
	t.Setenv("WEIR_MYSQL_DSN", mysql.DSN("weir"))
	public := func(path string) string {
		_, key, _ := tried(t, "identity-key", "--out", path)
		return strings.TrimSpace(key)
	}
	path := filepath.Join(t.TempDir(), "restate.pem")
	right, wrong := public(path), public(filepath.Join(t.TempDir(), "another.pem"))
	restate, err := servers.StartRestate(t.Context(), servers.RestateOptions{Env: []string{"RESTATE_WORKER__INVOKER__REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE=" + path}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := restate.Stop(); err != nil {
			t.Error(err)
		}
	})
	args := []string{"--restate-ingress", restate.IngressURL(), "--restate-admin", restate.AdminURL(), "--restate-identity-key"}

	r := startControl(t, append(args, wrong)...)
	migrated(t, mysql.DSN("weir"))
	await.NoError(t, "what is signed with another key is refused", func() error {
		if !strings.Contains(r.log.String(), "401") {
			return errors.New("the log does not say so")
		}
		return nil
	})
	r.drain()

	r = startControl(t, append(args, right)...)
	await.NoError(t, "what is signed with the right one is run", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		answer, err := r.client.CleanupRun(ctx, connect.NewRequest(&controlv1.CleanupRunRequest{Actor: "ann", Reason: "look"}))
		if err == nil && answer.Msg.GetRun().GetError() != "" {
			err = errors.New(answer.Msg.GetRun().GetError())
		}
		return err
	})
	r.drain()
}
