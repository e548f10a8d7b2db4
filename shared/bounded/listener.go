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

// A connection costs memory before any handler runs: its headers take many times their own length. So
// no address may have more than a quarter of a listener's connections, or this many if that is more.
const (
	connectionsPart    = 4
	connectionsPartMin = 64
)

// Listen lets at most most connections of inner be open, a quarter of them from one address. A
// further one is let in all the same, and the address that has the most, or too many, loses the one
// that it was heard on least recently; closed, which may be nil, is called then. So holding
// connections keeps no other caller out.
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

// add returns the connection that c takes the place of; nil if there is room.
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

// stalest takes out the connection that the address with the most was heard on least recently.
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

// Conn is a connection of Listen's.
type Conn struct {
	net.Conn
	listener *listener
	address  netip.Prefix
	caller   *Caller
	heard    atomic.Int64 // since the process began, in ns
	once     sync.Once

	mu     sync.Mutex
	closed bool               // guarded by mu
	after  map[*Hold]struct{} // guarded by mu: what is given back when it is closed
}

var began = time.Now()

func since() int64 { return int64(time.Since(began)) }

// Read delays the connections of a caller that is paced.
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

// Close may be called again.
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

// Keep has h given back when the connection is closed, unless Give or Forget was called before.
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

// CloseWrite tells the peer that no more will come, as net/http does before it closes.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// RemoteAddr leads ConnAt back to the connection.
func (c *Conn) RemoteAddr() net.Addr { return peerAddr{c.Conn.RemoteAddr(), c} }

type peerAddr struct {
	net.Addr
	conn *Conn
}

// ConnAt is the connection whose RemoteAddr a is; nil if it is not one of Listen's.
func ConnAt(a net.Addr) *Conn {
	peer, _ := a.(peerAddr)
	return peer.conn
}

// Caller is who has the connection; nil of a nil Conn.
func (c *Conn) Caller() *Caller {
	if c == nil {
		return nil
	}
	return c.caller
}

type connKey struct{}

// ConnContext is for http.Server's field of that name: it lets CallerOf find who calls.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if mine, ok := c.(*Conn); ok {
		return context.WithValue(ctx, connKey{}, mine.caller)
	}
	return ctx
}

// CallerOf is who sends a request, by the address; nil if the server's ConnContext is not the one
// of this package.
func CallerOf(ctx context.Context) *Caller {
	caller, _ := ctx.Value(connKey{}).(*Caller)
	return caller
}
