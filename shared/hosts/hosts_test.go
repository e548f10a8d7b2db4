package hosts

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A request of a page whose name points to loopback (DNS rebinding) is rejected, because the page does not choose the
// name in it. Requests with the machine's own names and addresses are answered.
func TestOnlyKnownHosts(t *testing.T) {
	names := []string{"limits.internal"}
	for _, step := range []struct {
		host string
		want bool
	}{
		{"127.0.0.1:7001", true},
		{"127.8.0.1", true},
		{"[::1]:7001", true},
		{"::1", true},
		{"[::ffff:127.0.0.1]:80", true},
		{"localhost:7001", true},
		{"LocalHost.", true},
		{"limits.internal:7001", true},
		{"LIMITS.internal", true},
		{"10.1.2.3:7001", true}, // the address it came to
		{"", true},              // HTTP/1.0; no browser
		{"10.1.2.4", false},
		{"rebound.example:7001", false},
		{"localhost.rebound.example", false},
		{"127.0.0.1.rebound.example", false},
		{"limits.internal.rebound.example", false},
		{"2130706433", false}, // a browser converts it to 127.0.0.1 before it sends it
	} {
		refused, answered := 0, 0
		handler := Only(names, "allowed-hosts", func() { refused++ }, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered++ }))
		r := httptest.NewRequest(http.MethodPost, "/metrics", nil)
		r.Host = step.host
		local := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 7001}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := answered == 1; got != step.want || refused != 1-answered {
			t.Errorf("host %q: answered %v, want %v; %d refusals", step.host, got, step.want, refused)
		}
		if !step.want && (w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "add the name to allowed-hosts")) {
			t.Errorf("host %q: %d %s", step.host, w.Code, w.Body)
		}
	}
}

// A page of another site reaches a server on loopback by the server's own name too, with requests that browsers send by
// themselves: images, frames, scripts. These are rejected; links that people follow are not.
func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	for _, step := range []struct {
		site, mode, dest string
		want             bool
	}{
		{"", "", "", true}, // no browser, or a browser that is older than these fields
		{"same-origin", "cors", "empty", true},
		{"same-site", "no-cors", "image", true}, // of a server on this machine
		{"none", "navigate", "document", true},  // typed
		{"cross-site", "navigate", "document", true},
		{"cross-site", "no-cors", "image", false},
		{"cross-site", "cors", "empty", false},
		{"cross-site", "navigate", "iframe", false},
		{"cross-site", "", "", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/profile?seconds=600", nil)
		r.Host = "localhost:7101"
		for name, value := range map[string]string{"Site": step.site, "Mode": step.mode, "Dest": step.dest} {
			if value != "" {
				r.Header.Set("Sec-Fetch-"+name, value)
			}
		}
		refused, w := 0, httptest.NewRecorder()
		Only(nil, "", func() { refused++ }, http.NotFoundHandler()).ServeHTTP(w, r)
		if got := w.Code == http.StatusNotFound; got != step.want || refused == 1 != (w.Code == http.StatusForbidden) {
			t.Errorf("%+v: status %d, %d refusals", step, w.Code, refused)
		}
	}
}

// Requests that no browser sends are not checked: gRPC's :authority is the caller's name for the server.
func TestWhatBrowsersDoNotSpeak(t *testing.T) {
	for name, adjust := range map[string]func(*http.Request){
		"HTTP/2 without TLS": func(r *http.Request) { r.ProtoMajor = 2 },
		"TLS":                func(r *http.Request) { r.TLS = new(tls.ConnectionState) },
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Host, r.TLS = "ratelimit_cluster", nil
		adjust(r)
		w := httptest.NewRecorder()
		Only(nil, "", nil, http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", name, w.Code)
		}
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:1": true, "[::1]:7001": true, "localhost:7001": true,
		":7001": false, "0.0.0.0:7001": false, "10.0.0.1:7001": false, "example.org:7001": false, "127.0.0.1": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("%q: %v, want %v", address, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	if err := Check([]string{"a.example", "10.0.0.1", "::2"}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "A.example", "http://a.example", "a.example:7001", "a.example/x", "a b"} {
		if err := Check([]string{name}); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
