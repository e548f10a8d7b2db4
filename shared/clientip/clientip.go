// Package clientip finds the address of a caller behind proxies.
package clientip

import (
	"net/netip"
	"strings"
)

// IPv6Bits is how much of an IPv6 address identifies a caller: a caller that has an address usually has all of its /64.
const IPv6Bits = 64

// hopsMax bounds the proxies between a caller and this server.
const hopsMax = 32

// Proxies are the networks of proxies that may speak for others; the zero value trusts none.
type Proxies []netip.Prefix

// Trust prepares networks for Find. Invalid networks match nothing.
func Trust(networks []netip.Prefix) Proxies {
	trusted := make(Proxies, len(networks))
	for i, p := range networks {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		trusted[i] = p.Masked()
	}
	return trusted
}

// Find returns the address of the caller: it walks from the connection's remote address through the
// elements of a header such as X-Forwarded-For, from right to left, past the proxies that are
// trusted. The first address that is not trusted is the caller's. Text to the left of it is not
// read, because the caller may have written it. If all addresses are trusted, the leftmost is the
// caller's. Empty elements are skipped (RFC 9110, section 5.6.1.2).
//
// If an element is not an address, such as "unknown", or after hopsMax proxies, the last address
// found is the caller's. So a caller cannot evade its limit by the text of the header.
//
// ok is false if remote is not an address.
func (t Proxies) Find(remote string, lines []string) (address netip.Addr, ok bool) {
	if address, ok = parse(remote); !ok {
		return netip.Addr{}, false
	}
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			if !t.contain(address) {
				return address, true
			}
			var hop string
			rest, hop, more = cutLast(rest)
			if hop = strings.Trim(hop, " \t"); hop == "" {
				continue
			}
			next, ok := parse(hop)
			if hops++; !ok || hops > hopsMax {
				return address, true
			}
			address = next
		}
	}
	return address, true
}

// Include reports whether a connection's other end is a trusted proxy.
func (t Proxies) Include(remote string) bool {
	address, ok := parse(remote)
	return ok && t.contain(address)
}

func (t Proxies) contain(address netip.Addr) bool {
	for _, p := range t {
		if p.Contains(address) {
			return true
		}
	}
	return false
}

// Network returns an address as a caller: whole for IPv4, its first bits for IPv6. It is the zero Prefix of the zero
// Addr.
func Network(address netip.Addr, ipv6Bits int) netip.Prefix {
	network, _ := address.Prefix(min(address.BitLen(), ipv6Bits))
	return network
}

// cutLast cuts a list at its last comma; more is false if there is none.
func cutLast(list string) (rest, last string, more bool) {
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		return list[:i], list[i+1:], true
	}
	return "", list, false
}

// parse reads an address with or without a port, a zone or brackets. An IPv4-mapped IPv6 address,
// as dual-stack sockets have it, is the IPv4 address.
func parse(s string) (netip.Addr, bool) {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
		if !strings.Contains(s, ":") {
			return netip.Addr{}, false // brackets are IPv6's
		}
	} else if strings.HasPrefix(s, "[") || strings.Count(s, ":") == 1 {
		withPort, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		return withPort.Addr().WithZone("").Unmap(), true
	}
	address, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return address.WithZone("").Unmap(), true
}
