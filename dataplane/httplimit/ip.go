package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/shared/clientip"
)

// IPConfig says how the address of a caller is found.
type IPConfig struct {
	// Trusted are the networks of proxies that may speak for others. A connection from
	// anywhere else is the caller itself, whatever it says.
	Trusted []netip.Prefix

	// Header is the list of addresses that they write; "" is X-Forwarded-For. Each proxy adds, on the right,
	// the address of its caller. Forwarded (RFC 7239) is no such list, and refused.
	Header string

	// IPv6Bits is how much of an IPv6 address is one caller, 32 to 128: a caller usually has
	// a whole /64. 0 is 64.
	IPv6Bits int
}

const ipv6BitsMin = 32

// ClientIP counts callers by their address. The header is read from the right, past
// the proxies that are trusted: what stands left of the first address that is not is
// that caller's own word, and not read. If all are trusted, the leftmost is the caller.
//
// A trusted proxy without the header is the caller itself, and so is one that wrote something other than an address,
// such as "unknown": callers behind it are counted as one. Empty elements of the list are skipped. There is no key
// where the connection itself has no address, as on a Unix socket.
func ClientIP(config IPConfig) (func(Call) (string, bool), error) {
	if config.Header == "" {
		config.Header = "X-Forwarded-For"
	}
	config.Header = http.CanonicalHeaderKey(config.Header)
	if config.Header == "Forwarded" || strings.ContainsAny(config.Header, " \t\r\n:,;") {
		return nil, fmt.Errorf("httplimit: IPConfig.Header is %q (a header that lists addresses, such as X-Forwarded-For)",
			config.Header)
	}
	if config.IPv6Bits == 0 {
		config.IPv6Bits = clientip.IPv6Bits
	}
	if config.IPv6Bits < ipv6BitsMin || config.IPv6Bits > 128 {
		return nil, fmt.Errorf("httplimit: IPConfig.IPv6Bits is %d (%d to 128)", config.IPv6Bits, ipv6BitsMin)
	}
	for _, p := range config.Trusted {
		if !p.IsValid() {
			return nil, errors.New("httplimit: IPConfig.Trusted holds an invalid prefix")
		}
	}
	trusted := clientip.Trust(config.Trusted)
	return func(c Call) (string, bool) {
		address, ok := trusted.Find(c.RemoteAddr(), c.Header()[config.Header])
		if !ok {
			return "", false
		}
		return config.key(address), true
	}, nil
}

// key is the address as a key: whole for IPv4, its network for IPv6.
func (c *IPConfig) key(address netip.Addr) string {
	if address.Is4() || c.IPv6Bits == 128 {
		return address.String()
	}
	return clientip.Network(address, c.IPv6Bits).String()
}
