package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/console/sessions"
)

// Ten addresses, or a thousand, that fail do not lock out any other.
func TestFailuresOfOtherAddressesDoNotLockOut(t *testing.T) {
	w := start(t, false)
	w.console.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	at := time.Now()
	w.console.now = func() time.Time { return at }
	sign := func(from, token string) answered {
		b := w.visit()
		r := b.request(http.MethodPost, "/console/sign-in", url.Values{"token": {token}})
		r.Header.Set("X-Forwarded-For", from)
		r.Header.Set("Origin", w.url)
		return b.do(r)
	}
	for i := range 30 {
		for range sessions.FailuresFree + 1 {
			sign(fmt.Sprint("192.0.2.", i), fmt.Sprint("wrong ", i))
		}
	}
	if a := sign("192.0.2.1", "viewer"); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.header.Get("Set-Cookie") != "" {
		t.Errorf("an address that failed: %d %v", a.status, a.header)
	}
	if a := sign("198.51.100.7", "viewer"); a.status != http.StatusSeeOther {
		t.Errorf("an address that did not: %d", a.status)
	}
	if a := sign("198.51.100.8", "wrong 1"); a.status != http.StatusTooManyRequests {
		t.Errorf("a token that failed, from another address: %d", a.status)
	}
}

// An outage is no failure of the caller's.
func TestAnOutageIsNoFailedSignIn(t *testing.T) {
	w := start(t, false)
	w.set(func() { w.noTokens = controlplane.ErrUnavailable })
	for range 2 * sessions.FailuresFree {
		a := w.visit().post("/console/sign-in", url.Values{"token": {"viewer"}})
		if a.status != http.StatusServiceUnavailable {
			t.Fatalf("an attempt during the outage: %d", a.status)
		}
	}
}

// "The connection's other end, or the address that the configured proxies name": loopback is not
// among them unless it is configured.
func TestAddress(t *testing.T) {
	c := &Console{Config: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}}}
	for _, tc := range []struct{ remote, forwarded, want string }{
		{"192.0.2.1:99", "", "192.0.2.1"},
		{"192.0.2.1:99", "198.51.100.7", "192.0.2.1"},
		{"127.0.0.1:99", "198.51.100.7", "127.0.0.1"},
		{"10.0.0.1:99", "198.51.100.7, 203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:99", "198.51.100.7, 10.1.2.3", "198.51.100.7"},
		{"10.0.0.1:99", "198.51.100.7, 203.0.113.9, 10.1.2.3", "203.0.113.9"},
		{"[::ffff:10.0.0.1]:99", "203.0.113.9:4711", "203.0.113.9"},
		{"[::1]:99", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"},
		{"[2001:db8:1:2:ffff::1]:99", "", "2001:db8:1:2::"},
		{"10.0.0.1:99", "someone", "10.0.0.1"},
		{"10.0.0.1:99", "198.51.100.7, someone", "10.0.0.1"},
		{"10.0.0.1:99", "", "10.0.0.1"},
		{"@", "198.51.100.7", "@"},
	} {
		r := &http.Request{RemoteAddr: tc.remote, Header: http.Header{}}
		if tc.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tc.forwarded)
		}
		if got := c.address(r); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}
