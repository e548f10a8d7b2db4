package console

import (
	"net/http"
	"strings"

	"github.com/weirhq/weir/shared/clientip"
)

// address is the caller that attempts to sign in are counted for: the connection's other end, or
// the address that the configured proxies name. An IPv6 caller is its /64.
func (c *Console) address(r *http.Request) string {
	at, _ := clientip.Proxies(c.TrustedProxies).Find(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if !at.IsValid() {
		return r.RemoteAddr
	}
	return clientip.Network(at, clientip.IPv6Bits).Addr().String()
}

// encrypted tells whether a token that the request carries is safe on its way: over TLS, or within
// this machine.
func (c *Console) encrypted(r *http.Request) bool { return c.overTLS(r) || loopbackHost(r.Host) }

// overTLS tells whether the browser speaks TLS, to this server or to a trusted proxy before it. A
// proxy that hands on what the browser sent, beside its own word, proves nothing: X-Forwarded-Proto
// counts if it has one value.
func (c *Console) overTLS(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	proto := r.Header.Values("X-Forwarded-Proto")
	return len(proto) == 1 && strings.EqualFold(proto[0], "https") &&
		clientip.Proxies(c.TrustedProxies).Include(r.RemoteAddr)
}
