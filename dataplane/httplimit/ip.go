package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// IPConfig says how the address of a caller is found.
type IPConfig struct {
	// Trusted are the networks of proxies that may speak for others. A connection from
	// anywhere else is the caller itself, whatever it says.
	Trusted []netip.Prefix

	// Header is where they say it; "" is X-Forwarded-For. Each proxy adds, on the right,
	// who connected to it.
	Header string

	// IPv6Bits is how much of an IPv6 address is one caller, 32 to 128: who has one has
	// at least a /64 of them. 0 is 64.
	IPv6Bits int
}

const (
	ipv6BitsDefault = 64
	ipv6BitsMin     = 32

	// hopsMax is how many proxies there may be between a caller and here.
	hopsMax = 32
)

// ClientIP counts callers by their address. The header is read from the right, past
// the proxies that are trusted: what stands left of the first address that is not is
// that caller's own word, and not read. If all are trusted, the leftmost is the caller.
//
// A trusted proxy that names nobody is the caller itself. There is no key where it names
// what is no address, or where the connection itself has none, as on a Unix socket.
func ClientIP(config IPConfig) (func(Call) (string, bool), error) {
	if config.Header == "" {
		config.Header = "X-Forwarded-For"
	}
	config.Header = http.CanonicalHeaderKey(config.Header)
	if config.IPv6Bits == 0 {
		config.IPv6Bits = ipv6BitsDefault
	}
	if config.IPv6Bits < ipv6BitsMin || config.IPv6Bits > 128 {
		return nil, fmt.Errorf("httplimit: IPConfig.IPv6Bits is %d (%d to 128)", config.IPv6Bits, ipv6BitsMin)
	}
	trusted := make([]netip.Prefix, len(config.Trusted))
	for i, p := range config.Trusted {
		if !p.IsValid() {
			return nil, errors.New("httplimit: IPConfig.Trusted holds an invalid prefix")
		}
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		trusted[i] = p.Masked()
	}
	config.Trusted = trusted
	return func(c Call) (string, bool) {
		address, ok := config.client(c.RemoteAddr(), c.Header()[config.Header])
		if !ok {
			return "", false
		}
		return config.key(address), true
	}, nil
}

// client walks from the connection's other end to the caller.
func (c *IPConfig) client(remote string, lines []string) (netip.Addr, bool) {
	address, ok := parseAddress(remote)
	if !ok {
		return netip.Addr{}, false
	}
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			if !c.trusts(address) {
				return address, true
			}
			if hops++; hops > hopsMax {
				return netip.Addr{}, false
			}
			var hop string
			rest, hop, more = cutLast(rest)
			if address, ok = parseAddress(strings.Trim(hop, " \t")); !ok {
				return netip.Addr{}, false
			}
		}
	}
	return address, true
}

// cutLast cuts a list at its last comma; more is false if there is none.
func cutLast(list string) (rest, last string, more bool) {
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		return list[:i], list[i+1:], true
	}
	return "", list, false
}

func (c *IPConfig) trusts(address netip.Addr) bool {
	for _, p := range c.Trusted {
		if p.Contains(address) {
			return true
		}
	}
	return false
}

// key is the address as a key: whole for IPv4, its network for IPv6.
func (c *IPConfig) key(address netip.Addr) string {
	if address.Is4() || c.IPv6Bits == 128 {
		return address.String()
	}
	network, _ := address.Prefix(c.IPv6Bits) // bounds were checked
	return network.String()
}

// parseAddress reads an address with or without a port, a zone or brackets. An IPv4
// address in IPv6's clothes is that address: dual-stack sockets dress it so.
func parseAddress(s string) (netip.Addr, bool) {
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
