package clientip

import (
	"net/netip"
	"strings"
	"testing"
)

// "From the right, past the proxies that are trusted", and where the walk ends.
func TestFind(t *testing.T) {
	trusted := Trust([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::ffff:192.168.0.0/112")})
	for _, tc := range []struct {
		remote, forwarded, want string
		ok                      bool
	}{
		{"192.0.2.1:99", "198.51.100.7", "192.0.2.1", true},
		{"10.0.0.1:99", "", "10.0.0.1", true},
		{"10.0.0.1:99", " \t,, ", "10.0.0.1", true},
		{"10.0.0.1:99", "203.0.113.9,", "203.0.113.9", true},
		{"10.0.0.1:99", "203.0.113.9, \t, 10.1.2.3 ,, ", "203.0.113.9", true},
		{"10.0.0.1:99", ", 203.0.113.9", "203.0.113.9", true},
		{"10.0.0.1:99", strings.Repeat(",", 1000) + "203.0.113.9" + strings.Repeat(" ,", 1000), "203.0.113.9", true},
		{"10.0.0.1:99", "::ffff:203.0.113.9", "203.0.113.9", true},
		{"10.0.0.1:99", "[::ffff:203.0.113.9]:80", "203.0.113.9", true},
		{"10.0.0.1:99", "2001:db8::1%eth0", "2001:db8::1", true},
		{"10.0.0.1:99", "198.51.100.7, 203.0.113.9:http", "10.0.0.1", true},
		{"10.0.0.1:99", "198.51.100.7, 203.0.113.09", "10.0.0.1", true},
		{"10.0.0.1:99", "198.51.100.7, \"203.0.113.9\"", "10.0.0.1", true},
		{"10.0.0.1:99", "198.51.100.7, 203.0.113.9, 10.1.2.3", "203.0.113.9", true},
		{"10.0.0.1:99", "10.0.0.3, 10.0.0.2", "10.0.0.3", true},
		{"192.168.4.1:99", "203.0.113.9:4711", "203.0.113.9", true},
		{"[::ffff:10.0.0.1]:99", "[2001:db8::1%eth0]:80", "2001:db8::1", true},
		{"10.0.0.1:99", "198.51.100.7, someone", "10.0.0.1", true},
		{"10.0.0.1:99", "198.51.100.7, someone, 10.0.0.2", "10.0.0.2", true},
		{"10.0.0.1:99", strings.Repeat("10.0.0.2,", hopsMax) + "10.0.0.2", "10.0.0.2", true},
		{"@", "198.51.100.7", "invalid IP", false},
	} {
		if got, ok := trusted.Find(tc.remote, []string{tc.forwarded}); got.String() != tc.want || ok != tc.ok {
			t.Errorf("%s through %q: %v, %t, want %s, %t", tc.remote, tc.forwarded, got, ok, tc.want, tc.ok)
		}
	}
	if got, ok := trusted.Find("10.0.0.1:99", nil); got.String() != "10.0.0.1" || !ok {
		t.Errorf("a proxy without the header: %v, %t", got, ok)
	}
}

// With any header the caller has an address. Text that a caller writes to the left of the address that a trusted proxy
// saw changes nothing.
func FuzzFind(f *testing.F) {
	for _, s := range []string{"", ",", "unknown", "_hidden", "[::1]:1", "203.0.113.9;proto=https", "\x00", "10.0.0.2, x"} {
		f.Add(s)
	}
	trusted := Trust([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	f.Fuzz(func(t *testing.T, forged string) {
		if got, ok := trusted.Find("10.0.0.1:99", []string{forged}); !ok || !got.IsValid() || got.Zone() != "" || got.Is4In6() {
			t.Errorf("%q: %v, %t", forged, got, ok)
		}
		if got, ok := trusted.Find("10.0.0.1:99", []string{forged + ",203.0.113.9 ,"}); !ok || got.String() != "203.0.113.9" {
			t.Errorf("%q: %v, %t", forged, got, ok)
		}
	})
}

// Include looks at the connection's other end only. A text that is no address is in no network.
func TestInclude(t *testing.T) {
	trusted := Trust([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	for remote, want := range map[string]bool{"10.0.0.1:99": true, "[::ffff:10.0.0.1]:99": true, "192.0.2.1:99": false, "@": false, "": false} {
		if got := trusted.Include(remote); got != want {
			t.Errorf("%q: %t", remote, got)
		}
	}
	if Proxies(nil).Include("127.0.0.1:99") {
		t.Error("the zero value includes loopback")
	}
}

func TestNetwork(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1": "192.0.2.1/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64"} {
		if got := Network(netip.MustParseAddr(address), IPv6Bits); got.String() != want {
			t.Errorf("%s: %v, want %s", address, got, want)
		}
	}
	if got := Network(netip.Addr{}, IPv6Bits); got != (netip.Prefix{}) {
		t.Errorf("no address: %v", got)
	}
}
