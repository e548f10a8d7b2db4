package bounded

import (
	"cmp"
	"container/list"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/shared/clientip"
)

// Caller is the holder of a token, or else an address. Each caller has a share of each bound. The zero Caller is a
// caller.
type Caller struct {
	bytes  [kinds]int64 // held by the caller's calls, per kind of Memory, which guards it
	going  [kinds]int64 // the part of bytes of calls that were cut off
	shares [kinds]share // per kind of Slots, which guard it
	begun  [kinds]atomic.Int64
	pace   pace
	name   string
	among  *Callers // nil for the holder of a token
}

// Named returns a caller with a name.
func Named(name string) *Caller { return &Caller{name: name} }

// Name returns the name of a caller, which is the address if it has no other. It is "" for a nil or zero Caller. A
// caller that returns later has the same name.
func (c *Caller) Name() string {
	if c == nil {
		return ""
	}
	return c.name
}

// Begin counts a call that begins, and reports whether the caller has at most `most` of them. If so, the caller of
// Begin must call End when the call has ended. A nil Caller has no bound.
func (c *Caller) Begin(kind Kind, most int) bool {
	if c != nil && c.begun[kind].Add(1) > int64(most) {
		c.End(kind)
		return false
	}
	return true
}

// End undoes Begin.
func (c *Caller) End(kind Kind) {
	if c != nil {
		c.begun[kind].Add(-1)
	}
}

// Callers are the callers that have a connection, by address, on all listeners that share the
// Callers. A caller whose last connection has ended is kept for awayFor: if it connects again, it
// still has the share that its earlier calls hold. The zero value is ready to use.
type Callers struct {
	mu        sync.Mutex
	byAddress map[netip.Prefix]*present
	away      list.List    // *present without a connection, the longest absent in front; at most awayMax
	connected atomic.Int64 // callers that have a connection
	pacing    *scheduler   // nil: Go's; a test can set it
}

func (c *Callers) scheduler() *scheduler { return cmp.Or(c.pacing, &goScheduler) }

const (
	awayFor = time.Minute // longer than any call can outlive its connection
	awayMax = 4096
)

type present struct {
	Caller
	address     netip.Prefix
	connections int
	left        time.Time     // when the last connection ended
	away        *list.Element // nil while there are connections
}

// addressOf returns the network of an address, or the zero Prefix if the connection has none.
func addressOf(a net.Addr) netip.Prefix {
	address, _ := clientip.Proxies(nil).Find(a.String(), nil)
	return clientip.Network(address, clientip.IPv6Bits)
}

func (c *Callers) enter(address netip.Prefix) *Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := c.byAddress[address]
	if who == nil {
		if c.byAddress == nil {
			c.byAddress = make(map[netip.Prefix]*present)
		}
		who = &present{Caller: Caller{among: c, name: address.String()}, address: address}
		c.byAddress[address] = who
	}
	if who.away != nil {
		c.away.Remove(who.away)
		who.away = nil
	}
	if who.connections++; who.connections == 1 {
		c.connected.Add(1)
	}
	return &who.Caller
}

func (c *Callers) leave(address netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := c.byAddress[address]
	if who == nil {
		return
	}
	if who.connections--; who.connections > 0 {
		return
	}
	c.connected.Add(-1)
	now := time.Now()
	who.left, who.away = now, c.away.PushBack(who)
	for {
		first, _ := c.away.Front().Value.(*present)
		if c.away.Len() <= awayMax && now.Sub(first.left) < awayFor {
			return
		}
		c.away.Remove(first.away)
		delete(c.byAddress, first.address)
	}
}

// At returns the caller with an address that has a connection, or had a connection within awayFor. Otherwise it returns
// nil.
func (c *Callers) At(a net.Addr) *Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	if who := c.byAddress[addressOf(a)]; who != nil {
		return &who.Caller
	}
	return nil
}
