package window

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// networks is an index of networks. In each list, which is sorted by address and then by bits, a network comes before
// the networks within it, and before all that follow these. So the last network that is not behind an address or
// network contains it, or one of the networks around that network does. A look-up is a binary search, and at most 128
// steps outwards.
type networks struct{ ip4, ip6 []placed }

// placed is a network and its place in the list of patterns.
type placed struct {
	bitString
	place  int32
	around int32 // the smallest network of the list that contains it; -1: none
}

// bitString has a network's bits, the first bit of its address in the highest bit of high. All others are 0.
type bitString struct {
	high, low uint64
	bits      uint8
}

func bitStringOf(network netip.Prefix) bitString {
	if network.Addr().Is4() {
		ip := network.Addr().As4()
		return bitString{uint64(binary.BigEndian.Uint32(ip[:])) << 32, 0, uint8(network.Bits())}
	}
	ip := network.Addr().As16()
	return bitString{binary.BigEndian.Uint64(ip[:8]), binary.BigEndian.Uint64(ip[8:]), uint8(network.Bits())}
}

func (b *bitString) compare(other *bitString) int {
	if b.high != other.high {
		return cmp.Compare(b.high, other.high)
	}
	if b.low != other.low {
		return cmp.Compare(b.low, other.low)
	}
	return int(b.bits) - int(other.bits)
}

// begins reports whether b is the beginning of another: the other network is b, or within b.
func (b *bitString) begins(other *bitString) bool {
	if b.bits > other.bits {
		return false
	}
	if b.bits <= 64 {
		return (b.high^other.high)>>(64-b.bits) == 0
	}
	return b.high == other.high && (b.low^other.low)>>(128-b.bits) == 0
}

// newNetworks makes an index of networks by their places. Of equal networks the first counts.
func newNetworks(list []netip.Prefix) (n networks) {
	for i, network := range list {
		of := &n.ip6
		if network.Addr().Is4() {
			of = &n.ip4
		}
		*of = append(*of, placed{bitStringOf(network), int32(i), -1})
	}
	n.ip4, n.ip6 = nested(n.ip4), nested(n.ip6)
	return n
}

// nested sorts networks, and sets which network each of them is in.
func nested(list []placed) []placed {
	slices.SortStableFunc(list, func(a, b placed) int { return a.compare(&b.bitString) })
	list = slices.CompactFunc(list, func(a, b placed) bool { return a.bitString == b.bitString })
	for i := range list {
		around := int32(i) - 1
		for around >= 0 && !list[around].begins(&list[i].bitString) {
			around = list[around].around
		}
		list[i].around = around
	}
	return list
}

// find returns the place of the smallest network that contains an address or network, -1 for none.
func (n *networks) find(identifier string) int {
	if len(n.ip4) == 0 && len(n.ip6) == 0 {
		return -1
	}
	network, ok := networkOf(identifier)
	if !ok {
		return -1
	}
	list, within := n.ip6, bitStringOf(network)
	if network.Addr().Is4() {
		list = n.ip4
	}
	low, high := 0, len(list) // networks before low are not behind it, networks from high on are
	for low < high {
		if middle := int(uint(low+high) >> 1); list[middle].compare(&within) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	for at := int32(low) - 1; at >= 0; at = list[at].around {
		if list[at].begins(&within) {
			return int(list[at].place)
		}
	}
	return -1
}
