package bounded

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Caller is who shares are counted by: whoever shows a token, or else whoever is at an address.
// The zero Caller is one.
type Caller struct {
	bytes   [kinds]int64 // by the Memory's kind, and guarded by it
	working atomic.Int64
}

// Callers are those who have a connection, by their addresses, on all listeners that share them.
// The zero value is ready.
type Callers struct {
	mu        sync.Mutex
	byAddress map[netip.Prefix]*present
}

type present struct {
	Caller
	connections int
}

// addressBitsMax is how much of an IPv6 address tells callers apart: who has one has all of its
// last 64 bits.
const addressBitsMax = 64

func addressOf(a net.Addr) (p netip.Prefix) {
	if ap, err := netip.ParseAddrPort(a.String()); err == nil {
		ip := ap.Addr().Unmap().WithZone("")
		p, _ = ip.Prefix(min(ip.BitLen(), addressBitsMax))
	}
	return p
}

func (c *Callers) enter(address netip.Prefix) *Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := c.byAddress[address]
	if who == nil {
		if c.byAddress == nil {
			c.byAddress = make(map[netip.Prefix]*present)
		}
		who = new(present)
		c.byAddress[address] = who
	}
	who.connections++
	return &who.Caller
}

func (c *Callers) leave(address netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if who := c.byAddress[address]; who != nil {
		if who.connections--; who.connections == 0 {
			delete(c.byAddress, address)
		}
	}
}
