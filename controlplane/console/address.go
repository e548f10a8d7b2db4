package console

import (
	"net/http"

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
