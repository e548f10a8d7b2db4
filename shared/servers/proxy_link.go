package servers

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// link is a client's connection to a Proxy and the matching connection to the target. The proxy's mutex guards its
// fields, except the fields that never change.
type link struct {
	client net.Conn
	server net.Conn // nil until dialed
	lost   bool     // some of its bytes were swallowed: no more replies pass
	deaf   bool     // in a black hole: requests do not pass either
	open   context.Context
	close  context.CancelFunc
}

// serve forwards bytes both ways until either side or a fault closes the connection.
func (p *Proxy) serve(from net.Listener, client net.Conn) {
	l := p.admit(from, client)
	if l == nil {
		return
	}
	defer p.drop(l)
	if !p.dial(l) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, l.server, l.client, false) })
	both.Go(func() { p.pump(l, l.client, l.server, true) })
	both.Wait()
}

// admit registers a connection, unless the proxy was cut after it was accepted.
func (p *Proxy) admit(from net.Listener, client net.Conn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != from {
		_ = client.Close()
		return nil
	}
	l := &link{client: client, lost: p.blackHole, deaf: p.blackHole}
	l.open, l.close = context.WithCancel(context.Background())
	p.links[l] = struct{}{}
	return l
}

// dial connects a link to the target. In a black hole it swallows the client's bytes until either side gives up.
func (p *Proxy) dial(l *link) bool {
	p.mu.Lock()
	lost, target := l.lost, p.target
	p.mu.Unlock()
	if lost {
		_, _ = io.Copy(io.Discard, l.client)
		return false
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(l.open, "tcp", target)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.open.Err() != nil {
		_ = server.Close()
		return false
	}
	l.server = server
	return true
}

// pump forwards bytes in one direction.
func (p *Proxy) pump(l *link, to, from net.Conn, replies bool) {
	defer p.drop(l)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && p.lets(l, replies) {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// lets delays replies and then reports whether bytes can pass. Requests pass while replies are dropped, even after the
// first lost reply, because the target executes everything that it receives.
func (p *Proxy) lets(l *link, replies bool) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if replies && delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.open.Done():
			return false
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.deaf = l.deaf || p.blackHole
	l.lost = l.lost || p.blackHole || replies && p.dropReplies
	return !l.deaf && !(replies && l.lost)
}

func (p *Proxy) drop(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked(l)
}

func (p *Proxy) closeLocked(l *link) {
	l.close()
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
	delete(p.links, l)
}
