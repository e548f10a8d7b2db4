package window

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// dumbNetwork reads an address or a network with package netip, and takes the IPv4 address out of a mapped or NAT64
// address.
func dumbNetwork(s string) (network netip.Prefix, ok bool) {
	network, err := netip.ParsePrefix(s)
	if err != nil {
		address, err := netip.ParseAddr(s)
		if err != nil || address.Zone() != "" {
			return netip.Prefix{}, false
		}
		network = netip.PrefixFrom(address, address.BitLen())
	}
	for _, around := range []string{"::ffff:0:0/96", "64:ff9b::/96"} {
		if first := netip.MustParsePrefix(around).Addr().As16(); network.Bits() >= 96 && network.Addr().Is6() {
			if ip := network.Addr().As16(); [12]byte(ip[:12]) == [12]byte(first[:12]) {
				network = netip.PrefixFrom(netip.AddrFrom4([4]byte(ip[12:])), network.Bits()-96)
			}
		}
	}
	return network.Masked(), true
}

// dumbFind tries every network, and returns the longest that contains the identifier.
func dumbFind(patterns []string, identifier string) (longest string) {
	within, ok := dumbNetwork(identifier)
	if !ok {
		return ""
	}
	bits := -1
	for _, pattern := range patterns {
		network := netip.MustParsePrefix(pattern)
		if network.Contains(within.Addr()) && network.Bits() <= within.Bits() && network.Bits() > bits {
			longest, bits = pattern, network.Bits()
		}
	}
	return longest
}

func TestNetworksOfPatterns(t *testing.T) {
	for _, pattern := range []string{"0.0.0.0/0", "10.0.0.0/8", "203.0.113.7/32", "::/0", "2001:db8::/32", "2001:db8:1:2::/64", "2001:db8::1/128", "64:ff9b::/64"} {
		if network, ok := Network(pattern); !ok || network.String() != pattern || PatternProblem(pattern) != "" || IsExact(pattern) {
			t.Errorf("%q: %v %t, %s", pattern, network, ok, PatternProblem(pattern))
		}
	}
	for pattern, problem := range map[string]string{
		"10.0.0.1/8":              `is "10.0.0.1/8" (this network is written "10.0.0.0/8")`,
		"2001:DB8::/32":           `is "2001:DB8::/32" (this network is written "2001:db8::/32")`,
		"2001:db8:0::/32":         `is "2001:db8:0::/32" (this network is written "2001:db8::/32")`,
		"::ffff:10.0.0.0/104":     `is "::ffff:10.0.0.0/104" (this network is written "10.0.0.0/8")`,
		"64:ff9b::c000:200/120":   `is "64:ff9b::c000:200/120" (this network is written "192.0.2.0/24")`,
		"64:ff9b::/96":            `is "64:ff9b::/96" (this network is written "0.0.0.0/0")`,
		"10.0.0.0/33":             `is "10.0.0.0/33" (the bits of this network are 0 to 32, without leading zeros)`,
		"10.0.0.0/08":             `is "10.0.0.0/08" (the bits of this network are 0 to 32, without leading zeros)`,
		"::/129":                  `is "::/129" (the bits of this network are 0 to 128, without leading zeros)`,
		"10.0.0.1/":               "",
		"10.0.0.1/login":          "",
		"10.0.0/8":                "",
		"10.0.0.0/-8":             "",
		"10.0.0.0/8/9":            "",
		"fe80::1%eth0/64":         "",
		"10.0.0.1":                "",
		"team-7/5":                "",
		strings.Repeat("a*", 9):   "has 9 '*' (0 to 8)",
		strings.Repeat("a*", 8):   "",
		"10.0.0.*":                "",
		"10.0.0.0/8*":             "",
		"::1.2.3.4/x":             "",
		"1:2:3:4:5:6:7:8::/1":     "",
		"0:0:0:0:0:ffff:a00:0/96": `is "0:0:0:0:0:ffff:a00:0/96" (this network is written "0.0.0.0/0")`,
	} {
		if _, ok := Network(pattern); ok || PatternProblem(pattern) != problem {
			t.Errorf("%q: %t, %q, want %q", pattern, ok, PatternProblem(pattern), problem)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, identifier string
		want                bool
	}{
		{"203.0.113.0/24", "203.0.113.7", true},
		{"203.0.113.0/24", "203.0.114.7", false},
		{"203.0.113.0/24", "::ffff:203.0.113.7", true},
		{"203.0.113.0/24", "::FFFF:CB00:7107", true},
		{"203.0.113.0/24", "64:ff9b::cb00:7107", true},
		{"203.0.113.0/24", "64:ff9b:1::cb00:7107", false},
		{"203.0.113.0/24", "203.0.113.0/24", true},
		{"203.0.113.0/24", "203.0.113.0/25", true},
		{"203.0.113.0/24", "203.0.113.0/23", false},
		{"203.0.113.0/24", "203.0.113.007", false},
		{"203.0.113.0/24", "203.0.113.7:80", false},
		{"203.0.113.0/24", "team/203.0.113.7", false},
		{"203.0.113.7/32", "203.0.113.7", true},
		{"203.0.113.7", "::ffff:203.0.113.7", false}, // an exact pattern is compared as bytes
		{"0.0.0.0/0", "203.0.113.7", true},
		{"0.0.0.0/0", "2001:db8::1", false},
		{"::/0", "203.0.113.7", false},
		{"::/0", "::ffff:203.0.113.7", false},
		{"::/0", "2001:db8::1", true},
		{"2001:db8::/32", "2001:DB8:0:0::1", true},
		{"2001:db8::/32", "2001:db8:1:2::/64", true}, // as httplimit.ClientIP writes an IPv6 caller
		{"2001:db8:1:2::/64", "2001:db8:1:2::/64", true},
		{"2001:db8:1:2:3::/80", "2001:db8:1:2::/64", false},
		{"fe80::/10", "fe80::1", true},
		{"fe80::/10", "fe80::1%eth0", false},
		{"10.0.0.1/8", "10.0.0.1/8", true}, // an exact pattern
		{"10.0.0.1/8", "10.0.0.1", false},
		{"10.0.0.*", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.1", true},
	} {
		if got := Matches(c.pattern, c.identifier); got != c.want {
			t.Errorf("%q, %q: %t", c.pattern, c.identifier, got)
		}
	}
}

// randomAddress draws addresses that often share their first bits.
func randomAddress(r *rand.Rand) netip.Addr {
	ip := [16]byte{}
	for i := range ip {
		ip[i] = byte([]int{0, 0, 255, 128, r.IntN(256)}[r.IntN(5)])
	}
	switch r.IntN(4) {
	case 0:
		copy(ip[:], []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255})
	case 1:
		copy(ip[:], []byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0})
	case 2:
		return netip.AddrFrom4([4]byte(ip[:]))
	}
	return netip.AddrFrom16(ip)
}

func randomNetwork(r *rand.Rand) string {
	for {
		address := randomAddress(r)
		network, _ := address.Prefix(r.IntN(address.BitLen() + 1))
		if _, ok := Network(network.String()); ok {
			return network.String()
		}
	}
}

// The index finds the longest network that contains an address or a network, as does a trial of every network. An exact
// pattern and patterns with '*' do not change that.
func TestNetworksAgreeWithTryingAll(t *testing.T) {
	found := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		var all []string
		for range r.IntN(80) {
			all = append(all, randomNetwork(r))
		}
		slices.Sort(all)
		all = slices.Compact(all)
		patterns := append(slices.Clone(all), "1*", "*:*", "*.0", "*")
		slices.SortFunc(patterns, ComparePatterns)
		index, _ := NewPatterns(patterns)
		for range 100 {
			identifier := randomAddress(r).String()
			if r.IntN(3) == 0 {
				identifier = fmt.Sprintf("%s/%d", identifier, r.IntN(129))
			}
			want := dumbFind(all, identifier)
			if want == "" {
				want = linearFind([]string{"1*", "*:*", "*.0", "*"}, identifier)
			} else {
				found++
			}
			if got := patterns[index.Find(identifier)]; got != want {
				t.Fatalf("seed %d, %q: found %q, want %q of %q", seed, identifier, got, want, patterns)
			}
			if got := linearFind(patterns, identifier); got != want {
				t.Fatalf("seed %d, %q: Matches finds %q, want %q of %q", seed, identifier, got, want, patterns)
			}
			var around []string
			for _, pattern := range NetworksAround(identifier) {
				if slices.Contains(all, pattern) {
					around = append(around, pattern)
				}
			}
			if longest := append(around, "")[0]; longest != dumbFind(all, identifier) {
				t.Fatalf("seed %d, %q: around it is %q of %q", seed, identifier, around, all)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d identifiers are in a network", found)
	}
}

func TestNetworksAround(t *testing.T) {
	for identifier, want := range map[string]int{"203.0.113.7": 33, "10.0.0.0/8": 9, "2001:db8::1": 129, "::ffff:10.0.0.1": 33, "user_1": 0} {
		if got := NetworksAround(identifier); len(got) != want {
			t.Errorf("%q: %d, want %d: %q", identifier, len(got), want, got)
		}
	}
}

// A look-up of any text allocates nothing: callers choose identifiers.
func TestNetworksAllocateNothing(t *testing.T) {
	index, _ := NewPatterns([]string{"2001:db8::/32", "10.0.0.0/8"})
	for _, identifier := range []string{"10.1.2.3", "10.1.2.3.4", "10.1.2.300", "2001:db8::1", "2001:db8::1/64", "2001:db8::1/640", "2001:db8::1%eth0", "::ffff:1.2.3.4", ":::", "user_1", strings.Repeat("1:", 100)} {
		if n := testing.AllocsPerRun(100, func() { index.Find(identifier) }); n != 0 {
			t.Errorf("%q: %v allocations", identifier, n)
		}
	}
}

// Addresses and networks are read as package netip reads them.
func FuzzNetworkOf(f *testing.F) {
	for _, s := range []string{"1.2.3.4", "01.2.3.4", "1.2.3.4/32", "1.2.3.4/032", "::", "::1", "1::", "1::2::3", ":1", "1:", "::1.2.3.4", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "1:2::1.2.3.4:5", "::ffff:1.2.3.4/97", "64:ff9b::1/128", "fe80::1%a", "::/0/0", "12345::", "::1.2.3", "/", "1:2:3:4:5:6:7:8::", "::1:2:3:4:5:6:7:8", ":::"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := networkOf(s)
		want, wantOK := dumbNetwork(s)
		if got != want || ok != wantOK {
			t.Errorf("%q: %v %t, want %v %t", s, got, ok, want, wantOK)
		}
		if written, canonical := Network(s); canonical != (ok && got.String() == s) || canonical && written != got {
			t.Errorf("%q: %v %t", s, written, canonical)
		}
		if ok && PatternProblem(got.String()) != "" {
			t.Errorf("%q: the form of %v is refused: %s", s, got, PatternProblem(got.String()))
		}
	})
}
