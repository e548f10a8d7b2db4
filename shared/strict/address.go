package strict

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

const (
	portMax      = 65535
	hostBytesMax = 253 // of a name in DNS
)

// ListenAddress reads the address of a listener, host:port. The host may be empty, for all
// addresses of the machine, and the port may be 0, for any free port.
func ListenAddress(field, text string) error { return address(field, text, true) }

// Address reads the address of a single server, host:port. A list of addresses is an error.
func Address(field, text string) error { return address(field, text, false) }

func address(field, text string, listens bool) error {
	host, port, err := net.SplitHostPort(text)
	switch {
	case text == "":
		return fmt.Errorf("%s is empty: want host:port", field)
	case strings.ContainsAny(text, ",; \t\r\n"):
		return fmt.Errorf("%s is %s: want one host:port, not a list", field, Quote(text))
	case err != nil:
		return fmt.Errorf("%s is %s: want host:port, and an IPv6 address in brackets", field, Quote(text))
	}
	low := int64(1)
	if listens {
		low = 0
	}
	if _, err := Int("port", port, low, portMax); err != nil {
		return fmt.Errorf("%s is %s: %w", field, Quote(text), err)
	}
	if host == "" && listens {
		return nil
	}
	if why := notHost(host); why != "" {
		return fmt.Errorf("%s is %s: %s", field, Quote(text), why)
	}
	return nil
}

// Host reads the name or the address of a single machine, without a port.
func Host(field, text string) error {
	if why := notHost(text); why != "" {
		return fmt.Errorf("%s is %s: %s", field, Quote(text), why)
	}
	return nil
}

// notHost returns why a text is neither an IP address nor a host name, or "".
func notHost(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	name := strings.TrimSuffix(host, ".")
	if name == "" {
		return "it names no host"
	}
	if len(name) > hostBytesMax {
		return fmt.Sprintf("the host is %d bytes long (1 to %d)", len(name), hostBytesMax)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || strings.ContainsFunc(label, notInHost) {
			return "the host is neither a name of letters, digits, '-', '_' and '.', nor an IP address"
		}
	}
	// Resolvers take such a name for an address, and 010 in it for 8.
	if last := labels[len(labels)-1]; digits(last) || strings.HasPrefix(strings.ToLower(last), "0x") {
		return "the host ends in a number and is not an IP address"
	}
	return ""
}

func notInHost(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}
