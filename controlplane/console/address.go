package console

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// callerBits is how much of an IPv6 address tells callers apart: who has one has all of its
// last 64 bits.
const callerBits = 64

// address is who attempts to sign in are counted for: who connects, or who the proxies that
// the configuration names say they speak for. X-Forwarded-For is read from the right, past
// those proxies; what a caller wrote into it itself is never reached.
func (c *Console) address(r *http.Request) string {
	remote, err := addrOf(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	at := remote
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !c.trusted(at) {
			break
		}
		next, err := addrOf(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		at = next
	}
	prefix, err := at.Prefix(min(at.BitLen(), callerBits))
	if err != nil {
		return at.String()
	}
	return prefix.Addr().String()
}

func (c *Console) trusted(at netip.Addr) bool {
	return slices.ContainsFunc(c.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(at) })
}

// addrOf reads an address with or without a port.
func addrOf(text string) (netip.Addr, error) {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	at, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return at.Unmap().WithZone(""), err
}
