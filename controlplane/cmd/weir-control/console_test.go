package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
)

// The console is a part of the API's listener, even while everything below is down, and
// is not there when it is not wanted.
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

// "Ten a minute for an address, a hundred for all together", by Weir itself.
func TestSignInsAreLimited(t *testing.T) {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g := gate{limiter}
	passed := 0
	for i := range attemptsPerAddress + 1 {
		ok, wait := g.Allow(t.Context(), "192.0.2.1")
		if ok != (i < attemptsPerAddress) || ok == (wait > 0) {
			t.Errorf("attempt %d: %v, %v", i+1, ok, wait)
		}
		if ok {
			passed++
		}
	}
	for i := 0; passed < attemptsTogether; i++ {
		if ok, _ := g.Allow(t.Context(), fmt.Sprint("another ", i)); !ok {
			t.Fatalf("only %d of %d pass together", passed, attemptsTogether)
		}
		passed++
	}
	if ok, _ := g.Allow(t.Context(), "one more"); ok {
		t.Error("there is no end to all together")
	}
}
