package httplimit_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/httplimit"
)

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48")}

// The header is read from the right, past trusted proxies. Left of the first other address it has only that caller's
// claims.
func TestClientIP(t *testing.T) {
	for _, c := range []struct {
		what, remote string
		forwarded    []string
		want         string
	}{
		{"no proxy", "192.0.2.1:1234", nil, "192.0.2.1"},
		{"a stranger's word is not taken", "192.0.2.1:1234", []string{"198.51.100.9"}, "192.0.2.1"},
		{"one proxy", "10.0.0.1:1234", []string{"192.0.2.1"}, "192.0.2.1"},
		{"the caller's own claim on the left", "10.0.0.1:1", []string{"1.1.1.1, 192.0.2.1"}, "192.0.2.1"},
		{"garbage on the left is not read", "10.0.0.1:1", []string{"<script>, 192.0.2.1"}, "192.0.2.1"},
		{"two proxies", "10.0.0.1:1", []string{"1.1.1.1, 192.0.2.1 ,10.9.9.9"}, "192.0.2.1"},
		{"two lines are one list", "10.0.0.1:1", []string{"1.1.1.1, 192.0.2.1", "10.9.9.9"}, "192.0.2.1"},
		{"all trusted: the leftmost", "10.0.0.1:1", []string{"10.1.1.1, 10.2.2.2"}, "10.1.1.1"},
		{"a proxy on its own behalf", "10.0.0.1:1", nil, "10.0.0.1"},
		{"with a port", "10.0.0.1:1", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{"IPv6 is its /64", "[2001:db8:1:2:3:4:5:6]:443", nil, "2001:db8:1:2::/64"},
		{"IPv6 behind a proxy, with port and zone", "[2001:db8:ffff::1]:443", []string{"[2001:db8:1:2:3:4:5:6%eth0]:80"}, "2001:db8:1:2::/64"},
		{"IPv6 in brackets", "10.0.0.1:1", []string{"[2001:db8:1:2::9]"}, "2001:db8:1:2::/64"},
		{"IPv4 in IPv6's clothes", "[::ffff:192.0.2.1]:443", nil, "192.0.2.1"},
		{"a proxy in IPv6's clothes", "[::ffff:10.0.0.1]:443", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"a trusted proxy reports nonsense", "10.0.0.1:1", []string{"192.0.2.1, unknown"}, "10.0.0.1"},
		{"a trusted proxy reports nothing", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"an empty hop", "10.0.0.1:1", []string{"192.0.2.1,"}, "192.0.2.1"},
		{"empty hops all around", "10.0.0.1:1", []string{",, 192.0.2.1 ,\t,", "", ","}, "192.0.2.1"},
		{"a Unix socket", "@", nil, ""},
		{"no address", "", []string{"192.0.2.1"}, ""},
		{"IPv4 in brackets", "10.0.0.1:1", []string{"[192.0.2.1]"}, "10.0.0.1"},
		{"too many hops", "10.0.0.1:1", []string{strings.Repeat("10.0.0.1,", 32) + "10.0.0.1"}, "10.0.0.1"},
	} {
		key, err := httplimit.ClientIP(httplimit.IPConfig{Trusted: proxies})
		if err != nil {
			t.Fatal(err)
		}
		got, found := key(call{remote: c.remote, header: http.Header{"X-Forwarded-For": c.forwarded}})
		if got != c.want || found != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.what, got, found, c.want)
		}
	}
}

func TestClientIPOptions(t *testing.T) {
	whole, err := httplimit.ClientIP(httplimit.IPConfig{IPv6Bits: 128, Header: "cf-connecting-ip", Trusted: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := whole(call{remote: "10.0.0.1:1", header: http.Header{"Cf-Connecting-Ip": {"2001:db8::7"}}}); got != "2001:db8::7" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []httplimit.IPConfig{{IPv6Bits: 31}, {IPv6Bits: 129}, {IPv6Bits: -1}, {Header: "forwarded"}, {Header: "X Forwarded For"}, {Trusted: []netip.Prefix{{}}}} {
		if _, err := httplimit.ClientIP(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Whatever a caller writes to the left, its key is the address that the nearest trusted proxy saw.
func FuzzForgedForwardedFor(f *testing.F) {
	for _, s := range []string{"", "1.1.1.1", ",,,", "10.0.0.1, 10.0.0.2", "[::1]:1", "\x00", "::ffff:10.0.0.1", "[2001:db8:ffff::1%z]"} {
		f.Add(s)
	}
	key, err := httplimit.ClientIP(httplimit.IPConfig{Trusted: proxies})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, forged string) {
		for _, lines := range [][]string{{forged + ", 192.0.2.1"}, {forged, "192.0.2.1"}, {forged, "192.0.2.1,10.1.1.1", "10.2.2.2"}} {
			if got, found := key(call{remote: "10.0.0.1:1", header: http.Header{"X-Forwarded-For": lines}}); !found || got != "192.0.2.1" {
				t.Errorf("%q: %q, %v", lines, got, found)
			}
		}
	})
}

// Any header from a trusted proxy gives an address in its single spelling. Only a connection without an address has
// none.
func FuzzClientIP(f *testing.F) {
	for _, s := range []string{"192.0.2.1", "2001:db8::1", "[2001:db8::1]:80", "192.0.2.1:80", "a, b", "fe80::1%eth0", "[", "]", "[]:", ":", "::ffff:1.2.3.4%x"} {
		f.Add("10.0.0.1:1", s)
		f.Add(s, "192.0.2.1")
	}
	key, err := httplimit.ClientIP(httplimit.IPConfig{Trusted: proxies})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		got, found := key(call{remote: remote, header: http.Header{"X-Forwarded-For": {forwarded}}})
		if _, ok := key(call{remote: remote}); found != ok || !found && got != "" {
			t.Errorf("%q: %q, %v", forwarded, got, found)
		}
		if !found {
			return
		}
		if p, err := netip.ParsePrefix(got); err == nil {
			if p.Bits() != 64 || p.Masked().String() != got || p.Addr().Is4In6() {
				t.Errorf("%q", got)
			}
			return
		}
		if a, err := netip.ParseAddr(got); err != nil || !a.Is4() || a.String() != got {
			t.Errorf("%q: %v", got, err)
		}
	})
}

// A header's value must be in a single line. It is trimmed, and counts for any sender.
func FuzzHeaderKey(f *testing.F) {
	for _, s := range []string{"", " ", "a", strings.Repeat("x", 300), "\x00", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, found := httplimit.Header("X-Api-Key")(call{header: http.Header{"X-Api-Key": {value}}})
		if want := strings.TrimSpace(value); got != want || found != (want != "") {
			t.Errorf("%q: %q, %v", value, got, found)
		}
		item := httplimit.AppendStanding(nil, value, -1, -1)
		if i := slices.IndexFunc(item, func(c byte) bool { return c < ' ' || c > '~' }); i >= 0 {
			t.Errorf("%q in a field", item[i])
		}
	})
}
