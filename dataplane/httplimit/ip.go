package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/shared/clientip"
)

// IPConfig sets how ClientIP finds the address of a caller.
type IPConfig struct {
	// Trusted are the networks of proxies whose headers are believed: for example, of your load balancers. If a connection
	// comes from anywhere else, its other end is the caller, whatever its header has.
	Trusted []netip.Prefix

	// Header is the header to which the proxies append addresses; "" is X-Forwarded-For. Each proxy
	// appends the address of its caller on the right. Forwarded (RFC 7239) has another format and
	// is an error.
	Header string

	// IPv6Bits is how many bits of an IPv6 address identify a caller, 32 to 128, because a caller usually has a whole /64.
	// 0 stands for 64.
	IPv6Bits int
}

const ipv6BitsMin = 32

// ClientIP returns a Key that identifies callers by their IP address. It reads the header from
// right to left, past the addresses of trusted proxies. The first address that is not trusted is
// the caller's. Text to the left of it is not read, because the caller may have written it. If all
// addresses are trusted, the leftmost is the caller's.
//
// If a trusted proxy sends no header, or an element that is not an address, such as "unknown", the
// proxy counts as the caller: all callers behind it share one limit. Empty elements are skipped
// (RFC 9110, section 5.6.1.2). If the connection has no address, as on a Unix socket, there is no
// key.
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

// key returns the address as a key: whole for IPv4, its network for IPv6.
func (c *IPConfig) key(address netip.Addr) string {
	if address.Is4() || c.IPv6Bits == 128 {
		return address.String()
	}
	return clientip.Network(address, c.IPv6Bits).String()
}
