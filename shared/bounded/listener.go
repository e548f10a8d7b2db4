package bounded

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// listener bounds the connections of one listener.
type listener struct {
	net.Listener
	callers *Callers
	most    int
	closed  func()

	mu    sync.Mutex
	open  int
	conns map[netip.Prefix]map[*Conn]struct{}
}

// A connection takes memory before any handler runs, because its headers take many times their own length. So an
// address can have at most a quarter of a listener's connections, or connectionsPartMin if that is more.
const (
	connectionsPart    = 4
	connectionsPartMin = 64
)

// Listen keeps at most `most` connections of inner open, a quarter of them from one address. It accepts a further
// connection too, and closes the connection that has been idle longest, of the address with the most connections or
// with too many. It calls closed then, which may be nil. So a caller that holds connections blocks no other caller.
func Listen(inner net.Listener, callers *Callers, most int, closed func()) net.Listener {
	return &listener{Listener: inner, callers: callers, most: most, closed: closed,
		conns: make(map[netip.Prefix]map[*Conn]struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: inner, listener: l, address: addressOf(inner.RemoteAddr())}
	c.caller = l.callers.enter(c.address)
	c.heard.Store(since())
	if surplus := l.add(c); surplus != nil {
		_ = surplus.Close()
		if l.closed != nil {
			l.closed()
		}
	}
	return c, nil
}

// add returns the connection that c replaces, or nil if there is room.
func (l *listener) add(c *Conn) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	var surplus *Conn
	mine := l.conns[c.address]
	switch {
	case len(mine) >= max(connectionsPartMin, l.most/connectionsPart):
		surplus = l.stalestOf(mine)
	case l.open >= l.most:
		surplus = l.stalest()
	}
	mine = l.conns[c.address] // the last of them may have gone
	if mine == nil {
		mine = make(map[*Conn]struct{})
		l.conns[c.address] = mine
	}
	mine[c] = struct{}{}
	l.open++
	return surplus
}

// stalest removes the connection that has been idle longest, of the address with the most connections.
func (l *listener) stalest() *Conn {
	var most map[*Conn]struct{}
	for _, conns := range l.conns {
		if len(conns) > len(most) {
			most = conns
		}
	}
	return l.stalestOf(most)
}

func (l *listener) stalestOf(most map[*Conn]struct{}) (stalest *Conn) {
	for c := range most {
		if stalest == nil || c.heard.Load() < stalest.heard.Load() {
			stalest = c
		}
	}
	l.remove(stalest)
	return stalest
}

func (l *listener) remove(c *Conn) {
	mine := l.conns[c.address]
	if _, there := mine[c]; !there {
		return
	}
	delete(mine, c)
	l.open--
	if len(mine) == 0 {
		delete(l.conns, c.address)
	}
}

// Conn is a connection of Listen.
type Conn struct {
	net.Conn
	listener *listener
	address  netip.Prefix
	caller   *Caller
	heard    atomic.Int64 // since the process began, in ns
	once     sync.Once

	mu     sync.Mutex
	closed bool               // guarded by mu
	after  map[*Hold]struct{} // guarded by mu: given back when it is closed
}

var began = time.Now()

func since() int64 { return int64(time.Since(began)) }

// Read delays the connections of a paced caller.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) > paceReadMax && c.caller.paced(c.heard.Load()) {
		p = p[:paceReadMax]
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		now := since()
		c.heard.Store(now)
		c.caller.arrive(c.listener.callers, now, n)
	}
	return n, err
}

// Close can be called again.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.listener.mu.Lock()
		c.listener.remove(c)
		c.listener.mu.Unlock()
		c.listener.callers.leave(c.address)
		c.giveAll()
	})
	return err
}

// Drop closes the connection soon. It does not block, and holds no lock that closing needs.
func (c *Conn) Drop() {
	if c != nil {
		go func() { _ = c.Close() }()
	}
}

// Keep gives h back when the connection is closed, unless Give or Forget was called before.
func (c *Conn) Keep(h *Hold) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		h.Give()
		return
	}
	if c.after == nil {
		c.after = make(map[*Hold]struct{})
	}
	c.after[h] = struct{}{}
}

// Forget undoes Keep.
func (c *Conn) Forget(h *Hold) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.after, h)
}

func (c *Conn) giveAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for h := range c.after {
		h.Give()
	}
	c.after = nil
}

// CloseWrite sends the end of the data to the peer, as net/http does before it closes.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// RemoteAddr returns an address from which ConnAt finds the connection.
func (c *Conn) RemoteAddr() net.Addr { return peerAddr{c.Conn.RemoteAddr(), c} }

type peerAddr struct {
	net.Addr
	conn *Conn
}

// ConnAt returns the connection whose RemoteAddr is a, or nil if it is not a connection of Listen.
func ConnAt(a net.Addr) *Conn {
	peer, _ := a.(peerAddr)
	return peer.conn
}

// Caller returns the connection's caller, or nil for a nil Conn.
func (c *Conn) Caller() *Caller {
	if c == nil {
		return nil
	}
	return c.caller
}

type connKey struct{}

// ConnContext is a value for http.Server's field ConnContext. CallerOf needs it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if mine, ok := c.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, mine.caller)
	}
	return ctx
}

// CallerOf returns the caller of a request, by address. It returns nil if the server's ConnContext is not the
// ConnContext of this package.
func CallerOf(ctx context.Context) *Caller {
	caller, _ := ctx.Value(connKey{}).(*Caller)
	return caller
}
