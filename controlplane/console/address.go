package console

import (
	"net/http"
	"strings"

	"github.com/weirhq/weir/shared/clientip"
)

// address returns the address under which a sign-in attempt is counted: the other end of the connection, or the address
// that trusted proxies report. An IPv6 address is counted by its /64.
func (c *Console) address(r *http.Request) string {
	at, _ := clientip.Proxies(c.TrustedProxies).Find(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if !at.IsValid() {
		return r.RemoteAddr
	}
	return clientip.Network(at, clientip.IPv6Bits).Addr().String()
}

// encrypted reports whether a token in the request is protected on its way: by TLS, or because it does not leave this
// machine.
func (c *Console) encrypted(r *http.Request) bool { return c.overTLS(r) || loopbackHost(r.Host) }

// overTLS reports whether the browser uses TLS, either to this server or to a trusted proxy in front of it.
// X-Forwarded-Proto counts only if it has exactly one value, because a proxy that appends its own value to the
// browser's proves nothing.
func (c *Console) overTLS(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	proto := r.Header.Values("X-Forwarded-Proto")
	return len(proto) == 1 && strings.EqualFold(proto[0], "https") &&
		clientip.Proxies(c.TrustedProxies).Include(r.RemoteAddr)
}
