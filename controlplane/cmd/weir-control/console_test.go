package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The console is a part of the API's listener, even while every server below is down. It is not there unless it is
// configured.
func TestTheConsoleIsServed(t *testing.T) {
	t.Setenv("WEIR_MYSQL_DSN", "weir:s3cret@tcp(127.0.0.1:1)/weir")
	nowhere := []string{"--restate-ingress", "http://127.0.0.1:1", "--restate-admin", "http://127.0.0.1:1"}
	for flag, want := range map[string]struct {
		status int
		says   string
	}{
		"--console":    {http.StatusServiceUnavailable, "MySQL does not answer"},
		"--no-console": {http.StatusNotFound, "404"},
	} {
		r := startControl(t, append(nowhere, flag)...)
		status, body := r.page("/console/")
		if status != want.status || !strings.Contains(body, want.says) || strings.Contains(body, "s3cret") {
			t.Errorf("%s: %d %s", flag, status, body)
		}
		r.drain()
	}
}

func (r *running) page(path string) (status int, body string) {
	r.t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// Proxies are given by address or network. Other values are rejected.
func TestTrustedProxies(t *testing.T) {
	got, err := trustedProxies([]string{"10.1.2.3/8", "127.0.0.1", "2001:db8::/32", "::1"})
	if err != nil || fmt.Sprint(got) != "[10.0.0.0/8 127.0.0.1/32 2001:db8::/32 ::1/128]" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"proxy.internal", "10.0.0.0/33", ""} {
		if _, err := trustedProxies([]string{bad}); err == nil || !strings.Contains(err.Error(), "api-trusted-proxies") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
