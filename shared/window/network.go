package window

import (
	"fmt"
	"net/netip"
	"strings"
)

// A pattern can be a network in CIDR notation, such as "203.0.113.0/24" or "2001:db8::/32". It matches the identifiers
// that are addresses in the network, and those that are networks within it, such as the /64 of an IPv6 caller. An IPv4
// address that is mapped into IPv6 (::ffff:0:0/96) or translated by NAT64 (64:ff9b::/96) is the IPv4 address. So each
// address has a single form, and each network has a single text.

var nat64 = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052

// Network returns the network that a pattern is. ok is false for other patterns, and for a network that is not written
// in its only form: for example, "10.0.0.1/8" matches only the identifier with that text. See PatternProblem.
func Network(pattern string) (network netip.Prefix, ok bool) {
	if network, ok = networkOf(pattern); !ok || network.String() != pattern {
		return netip.Prefix{}, false
	}
	return network, true
}

// NetworksAround returns the patterns of all networks that match an identifier, beginning with the smallest: at most 33
// for an IPv4 address and 129 for an IPv6 address, and none for an identifier that is no address or network.
func NetworksAround(identifier string) (patterns []string) {
	network, ok := networkOf(identifier)
	if !ok {
		return nil
	}
	for bits := network.Bits(); bits >= 0; bits-- {
		around, _ := network.Addr().Prefix(bits)
		patterns = append(patterns, around.String())
	}
	return patterns
}

// networkProblem reports a text that looks like a network, and that Network does not accept.
func networkProblem(pattern string) (problem string, found bool) {
	text, bits, _ := strings.Cut(pattern, "/")
	address, ok := addressOf(text)
	if !ok || bits == "" || strings.Trim(bits, "0123456789") != "" {
		return "", false
	}
	network, ok := networkOf(pattern)
	switch written := network.String(); {
	case !ok:
		return fmt.Sprintf("is %q (the bits of this network are 0 to %d, without leading zeros)", pattern,
			address.BitLen()), true
	case written != pattern:
		return fmt.Sprintf("is %q (this network is written %q)", pattern, written), true
	}
	return "", false
}

// networkOf reads an address or a network. It accepts the texts that netip.ParseAddr and netip.ParsePrefix accept,
// except for addresses with a zone, and allocates nothing.
func networkOf(text string) (network netip.Prefix, ok bool) {
	text, written, sized := strings.Cut(text, "/")
	address, ok := addressOf(text)
	if !ok {
		return netip.Prefix{}, false
	}
	bits := address.BitLen()
	if sized {
		if bits, ok = decimal(written, bits); !ok {
			return netip.Prefix{}, false
		}
	}
	if bits >= 96 && (address.Is4In6() || nat64.Contains(address)) {
		ip := address.As16()
		address, bits = netip.AddrFrom4([4]byte(ip[12:])), bits-96
	}
	network, err := address.Prefix(bits)
	return network, err == nil
}

// addressOf is netip.ParseAddr without zones. It does not allocate an error, because most identifiers are no addresses.
func addressOf(text string) (address netip.Addr, ok bool) {
	for _, c := range []byte(text[:min(len(text), 5)]) { // a part of an address has at most 4 digits
		switch c {
		case '.':
			ip, ok := ipv4(text)
			return netip.AddrFrom4(ip), ok
		case ':':
			ip, ok := ipv6(text)
			return netip.AddrFrom16(ip), ok
		}
	}
	return netip.Addr{}, false
}

func ipv4(text string) (ip [4]byte, ok bool) {
	part, value, digits := 0, 0, 0
	for _, c := range []byte(text) {
		switch {
		case c >= '0' && c <= '9' && (digits == 0 || value > 0): // no leading zeros
			if value, digits = value*10+int(c-'0'), digits+1; value > 255 {
				return ip, false
			}
		case c == '.' && digits > 0 && part < len(ip)-1:
			ip[part] = byte(value)
			part, value, digits = part+1, 0, 0
		default:
			return ip, false
		}
	}
	ip[part] = byte(value)
	return ip, digits > 0 && part == len(ip)-1
}

func ipv6(text string) (ip [16]byte, ok bool) {
	at, gap := 0, -1 // gap is where "::" stands for zeros
	if rest, found := strings.CutPrefix(text, "::"); found {
		gap, text = 0, rest
	}
	for text != "" || gap < 0 {
		value, digits := hexadecimal(text)
		rest := text[digits:]
		if digits > 0 && strings.HasPrefix(rest, ".") && (at == 12 || at < 12 && gap >= 0) {
			last, ok := ipv4(text)
			if !ok {
				return ip, false
			}
			at += copy(ip[at:], last[:])
			break
		}
		if digits == 0 || at == len(ip) || rest != "" && (rest[0] != ':' || len(rest) == 1) {
			return ip, false
		}
		ip[at], ip[at+1] = byte(value>>8), byte(value)
		at += 2
		if rest == "" {
			break
		}
		if text = rest[1:]; text[0] == ':' {
			if gap >= 0 {
				return ip, false
			}
			gap, text = at, text[1:]
		}
	}
	if gap < 0 || at == len(ip) {
		return ip, gap < 0 && at == len(ip)
	}
	moved := copy(ip[len(ip)-(at-gap):], ip[gap:at])
	clear(ip[gap : len(ip)-moved])
	return ip, true
}

// decimal reads a number of 0 to most, at most 999, without leading zeros.
func decimal(text string, most int) (value int, ok bool) {
	if text == "" || len(text) > 3 || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		value = value*10 + int(c-'0')
	}
	return value, value <= most
}

// hexadecimal reads the digits that a text begins with, at most 4.
func hexadecimal(text string) (value uint16, digits int) {
	for digits < min(len(text), 4) {
		switch c := text[digits]; {
		case c >= '0' && c <= '9':
			value = value<<4 | uint16(c-'0')
		case c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			value = value<<4 | uint16(c|0x20-'a'+10)
		default:
			return value, digits
		}
		digits++
	}
	return value, digits
}
