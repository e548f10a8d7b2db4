// Package hosts rejects requests that a web page sends to a server on its reader's own machine.
//
// A page of some site can let the site's name point to a loopback address (DNS rebinding). For the browser that server
// is then the page's own, and the page may send it anything and read every answer. The browser sends the site's name in
// the request's Host field, so a server on loopback answers only requests with a name from its list.
//
// Only HTTP/1.x without TLS is checked. Browsers use HTTP/2 over TLS alone, and over TLS the certificate names the
// server. So gRPC without TLS is never checked: its :authority is the caller's name for the server, for example the
// name of an Envoy cluster.
package hosts

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Only serves requests whose Host is a loopback name or address, the server's own address, or in
// names, and answers others with 403. It also answers 403 if a web page of another site sent the
// request, for example to load an image. Only calls refused for each refusal; it may be nil.
// setting is the option that adds a name, for the error's text.
func Only(names []string, setting string, refused func(), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var problem string
		switch {
		case r.ProtoMajor >= 2 || r.TLS != nil:
		case !Known(names, r.Host) && !own(r):
			problem = fmt.Sprintf("the host %.80q is not known here: use a loopback address, or add the name to %s", r.Host,
				setting)
		case crossSite(r):
			problem = "a web page of another site sent this request"
		}
		if problem == "" {
			next.ServeHTTP(w, r)
			return
		}
		if refused != nil {
			refused()
		}
		w.Header().Set("Connection", "close") // its body is not read
		http.Error(w, problem, http.StatusForbidden)
	})
}

// crossSite reports whether a web page of another site sent the request, unless a person followed a
// link. Such a page cannot read the answer to a GET, but the request costs the server work, for
// example a profile that takes 30 s. Browsers send these header fields to loopback addresses; other
// clients do not send them.
func crossSite(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") == "cross-site" &&
		(r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document")
}

// Known reports whether a Host field is a loopback name or address, or is in names, which must be in lower case. It
// also accepts an empty host, because every browser sends one.
func Known(names []string, host string) bool {
	name := nameOf(host)
	if name == "" || name == "localhost" || slices.Contains(names, name) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}

// own reports whether a request's host is the address at which the request arrived.
func own(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && nameOf(local.String()) == nameOf(r.Host)
}

// nameOf returns a host without its port, in lower case.
func nameOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// Loopback reports whether only this machine can reach a listener's address, host:port. It does not resolve names,
// because a name's address may change.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Check returns an error if a name cannot be the host of a request: names must have no scheme, port or path, and must
// be in lower case.
func Check(names []string) error {
	for _, name := range names {
		if name == "" || name != nameOf(name) || strings.ContainsAny(name, "/:@ ") && !isAddress(name) {
			return fmt.Errorf("%.80q is no host: want a name or an address, in lower case, without scheme and port", name)
		}
	}
	return nil
}

func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}
