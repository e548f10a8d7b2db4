package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// Attempts that fail slow their own address and their own token down, and nothing else.
func TestFailedSignInsSlowDown(t *testing.T) {
	now := time.Unix(0, 0)
	b := newBackoff()
	b.now = func() time.Time { return now }
	for i := range failuresFree {
		if wait := b.try("address a"); wait != 0 {
			t.Fatalf("attempt %d waits %v", i+1, wait)
		}
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		if wait := b.try("address a"); wait != want {
			t.Fatalf("failure %d: the next waits %v, want %v", failuresFree+i, wait, want)
		}
		if wait := b.try("address a", "token t"); wait != want {
			t.Fatalf("with another token: %v", wait)
		}
		if now = now.Add(want - time.Nanosecond); b.try("address a") != time.Nanosecond {
			t.Fatal("it does not wait for all of it")
		}
		if now = now.Add(time.Nanosecond); b.try("address a") != 0 {
			t.Fatal("it waits for longer than it said")
		}
	}
	if wait := b.try("address b", "token t"); wait != 0 {
		t.Errorf("another address waits %v", wait)
	}
	now = now.Add(forgetAfter)
	for range failuresFree {
		if wait := b.try("address a"); wait != 0 {
			t.Errorf("a quarter of an hour forgets nothing: %v", wait)
		}
	}
}

// Attempts in progress count, attempts that pass do not, and memory is bounded.
func TestBackoffCountsWhatFails(t *testing.T) {
	b := newBackoff()
	for i := range 10 * failuresFree {
		if wait := b.try("address a", "token t"); wait != 0 {
			t.Fatalf("sign-in %d waits %v", i+1, wait)
		}
		b.passed("address a", "token t")
	}
	if len(b.byKey) != 0 {
		t.Errorf("%d counters are left of what has passed", len(b.byKey))
	}
	under := 0
	for range 100 { // none has ended yet
		if b.try("address a") == 0 {
			under++
		}
	}
	if under != failuresFree {
		t.Errorf("%d attempts at once, want %d", under, failuresFree)
	}
	for i := range countersMax + 10 {
		b.try(fmt.Sprint("address ", i))
	}
	if len(b.byKey) != countersMax {
		t.Errorf("%d counters", len(b.byKey))
	}
}

// Ten addresses, or a thousand, that fail do not lock out any other.
func TestFailuresOfOtherAddressesDoNotLockOut(t *testing.T) {
	w := start(t, false)
	w.console.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	at := time.Now()
	w.console.backoff.now = func() time.Time { return at }
	sign := func(from, token string) answered {
		b := w.visit()
		r := b.request(http.MethodPost, "/console/sign-in", url.Values{"token": {token}})
		r.Header.Set("X-Forwarded-For", from)
		r.Header.Set("Origin", w.url)
		return b.do(r)
	}
	for i := range 30 {
		for range failuresFree + 1 {
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
	w.set(func() { w.down = controlplane.ErrUnavailable })
	for range 2 * failuresFree {
		w.visit().post("/console/sign-in", url.Values{"token": {"viewer"}})
	}
	if n := len(w.console.backoff.byKey); n != 0 {
		t.Errorf("%d counters after an outage", n)
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
