package main

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/gubernator-io/gubernator/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/testcert"
)

// loaded returns the settings of an environment, with the settings of the test's file.
func loaded(t *testing.T, environment ...string) *settings {
	t.Helper()
	t.Cleanup(func() { v1.DebugEnabled = false })
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	s, err := load("", false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Without configuration it listens on loopback, whichever address "localhost" has, and counts by itself.
func TestWithoutConfiguration(t *testing.T) {
	s := loaded(t)
	want := []string{"--region=default", "--grpc-listen=127.0.0.1:1051", "--listen=127.0.0.1:1050",
		"--admin-listen=127.0.0.1:0"}
	if !slices.Equal(s.flags, want) || s.workspace != "default" || !s.alone || s.ignored != nil || s.public != nil ||
		s.tls || s.connectionAge != 0 {
		t.Errorf("%+v", s)
	}
	if os.Getenv("GUBER_ADVERTISE_ADDRESS") != "" {
		t.Error("it has left a variable behind")
	}
}

// Flags do not repeat settings of weir-node's own variables.
func TestWeirsVariables(t *testing.T) {
	s := loaded(t, "WEIR_REDIS_URL=redis://127.0.0.1:1", "WEIR_REGION=eu", "WEIR_ADMIN_LISTEN=127.0.0.1:7101",
		"WEIR_WORKSPACE=acme", "WEIR_LOG_LEVEL=error")
	want := []string{"--grpc-listen=127.0.0.1:1051", "--listen=127.0.0.1:1050"}
	if !slices.Equal(s.flags, want) || s.workspace != "acme" || s.alone || s.level.String() != "ERROR" {
		t.Errorf("%+v", s)
	}
}

// Addresses that other machines can reach are used as configured, and listed in a warning.
func TestPublicAddresses(t *testing.T) {
	s := loaded(t, "GUBER_GRPC_ADDRESS=0.0.0.0:1051", "GUBER_HTTP_ADDRESS=localhost:80", "GUBER_GRPC_MAX_CONN_AGE_SEC=30",
		"GUBER_ADVERTISE_ADDRESS=10.0.0.1:1051", "GUBER_STATUS_HTTP_ADDRESS=:1040", "GUBER_LOG_FORMAT=json",
		"GUBER_LOG_LEVEL=trace")
	if !slices.Equal(s.public, []string{"0.0.0.0:1051"}) || s.connectionAge != 30*time.Second || s.probeListen != "" ||
		!slices.Equal(s.ignored, []string{"GUBER_ADVERTISE_ADDRESS", "GUBER_STATUS_HTTP_ADDRESS"}) ||
		!slices.Contains(s.flags, "--log-level=debug") {
		t.Errorf("%+v", s)
	}
	if s = loaded(t, "WEIR_TOKENS_FILE=/run/tokens"); s.public != nil {
		t.Errorf("%+v", s)
	}
}

// Certificates of callers authenticate them; TLS alone does not, and an address stays public.
func TestPublicAddressesWithTLS(t *testing.T) {
	authority, dir := testcert.New(t), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	authority.Issue(t).Write(t, path("c"), path("k"))
	for _, name := range []string{"ca", "clients"} {
		if err := os.WriteFile(path(name), authority.PEM, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	public := []string{"0.0.0.0:1051"}
	s := loaded(t, "GUBER_GRPC_ADDRESS="+public[0], "GUBER_TLS_CERT="+path("c"), "GUBER_TLS_KEY="+path("k"),
		"GUBER_TLS_MIN_VERSION=1.2")
	if !slices.Equal(s.public, public) || s.ignored != nil || s.tlsVersionMin != tls.VersionTLS12 {
		t.Errorf("TLS alone: %+v", s)
	}
	s = loaded(t, "GUBER_TLS_MIN_VERSION=1.1")
	if !slices.Equal(s.ignored, []string{"GUBER_TLS_MIN_VERSION"}) {
		t.Errorf("TLS 1.1, which a node does not speak: %+v", s)
	}
	s = loaded(t, "GUBER_TLS_CLIENT_AUTH=require-and-verify", "GUBER_TLS_CA="+path("ca"),
		"GUBER_TLS_CLIENT_AUTH_CA_CERT="+path("clients"))
	if s.public != nil || !slices.Contains(s.flags, "--tls-client-ca-file="+path("clients")) {
		t.Errorf("callers' certificates: %+v", s)
	}
}

// WEIR_CONFIG is a file that may have settings that variables lack: no flag overrides it, and it may have the address
// of a Redis.
func TestWeirsFile(t *testing.T) {
	s := loaded(t, "WEIR_CONFIG=/etc/weir.yaml", "GUBER_LOG_FORMAT=text")
	want := []string{"--grpc-listen=127.0.0.1:1051", "--listen=127.0.0.1:1050"}
	if !slices.Equal(s.flags, want) || s.alone || !slices.Equal(s.ignored, []string{"GUBER_LOG_FORMAT"}) {
		t.Errorf("%+v", s)
	}
}

// A Redis address in a file counts as a Redis.
func TestARedisOfAFile(t *testing.T) {
	if s := loaded(t, "WEIR_REDIS_URL_FILE=/run/redis-url"); s.alone {
		t.Errorf("%+v", s)
	}
}

// HealthCheck reports the server "as healthy until Drain": it fails once the node drains.
func TestHealthHearsOfADrain(t *testing.T) {
	l, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	api, err := loaded(t).api(l)
	if err != nil {
		t.Fatal(err)
	}
	health := func() error {
		_, err := api.Server.(v1.V1Server).HealthCheck(t.Context(), new(v1.HealthCheckReq))
		return err
	}
	if err := health(); err != nil {
		t.Error(err)
	}
	api.Draining()
	if err := health(); status.Code(err) != codes.Unavailable {
		t.Errorf("while the node drains: %v", err)
	}
}

// Levels write no more than gubernator's.
func TestLevels(t *testing.T) {
	for theirs, want := range map[string]string{"panic": "error", "fatal": "error", "error": "error", "warn": "warn",
		"warning": "warn", "info": "info", "debug": "debug", "trace": "debug"} {
		if got := levelOf(theirs); got != want {
			t.Errorf("%s is %s, want %s", theirs, got, want)
		}
	}
}
