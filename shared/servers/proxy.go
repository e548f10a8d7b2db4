package servers

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy passes TCP connections on to a target and can break what lies between: a dead server, a silent one, a slow one,
// and one whose replies are lost after it has done what was asked.
//
// Faults act on open connections and new ones, and last until undone one by one or by Heal. Bytes that a fault
// swallowed never arrive later: their connection is closed when a fault ends, as half a stream is of no use to anybody.
// All methods may be called from several goroutines.
type Proxy struct {
	port *port

	mu          sync.Mutex
	target      string
	listener    net.Listener // nil while cut or closed
	links       map[*link]struct{}
	delay       time.Duration
	blackHole   bool
	dropReplies bool
	closed      bool

	running sync.WaitGroup // the accept loops and the links
}

// StartProxy listens on a free port of 127.0.0.1 and passes everything on to target (host:port), which need not be
// there yet: a connection that cannot be passed on is closed.
func StartProxy(target string) (*Proxy, error) {
	p := &Proxy{target: target, port: newPort(0), links: make(map[*link]struct{})}
	for attempt := 1; ; attempt++ {
		_, err := choose([]*port{p.port})
		if err == nil {
			err = p.Heal()
		}
		if err == nil {
			return p, nil
		}
		if attempt == portAttempts {
			return nil, fmt.Errorf("start proxy to %s: %w", target, err)
		}
	}
}

// Addr returns host:port, the same for the proxy's whole life.
func (p *Proxy) Addr() string { return p.port.addr() }

// SetTarget sends new connections to another target, as when a name changes its address in a
// failover. Open connections keep their target.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut is a dead server: all connections are closed, new ones refused.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// SetDelay holds every reply back by d. Replies that come in while one is held back go on together after it, so that a
// connection with one request at a time sees exactly d more, and a pipelined one at most 2d.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// BlackHole is a broken network: connections are accepted, and nothing passes in either direction.
func (p *Proxy) BlackHole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackHole = on
	if !on {
		p.dropLostLocked()
	}
}

// DropReplies is a lost reply: requests reach the target, which acts on them, and what it answers is swallowed.
func (p *Proxy) DropReplies(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropReplies = on
	if !on {
		p.dropLostLocked()
	}
}

// Heal undoes every fault. It fails only if somebody else took the port while it was cut, or after Close.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("heal proxy to %s: %w", p.target, net.ErrClosed)
	}
	p.delay, p.blackHole, p.dropReplies = 0, false, false
	p.dropLostLocked()
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return fmt.Errorf("heal proxy to %s: %w", p.target, err)
	}
	p.listener = l
	p.running.Go(func() { p.accept(l) })
	return nil
}

// Close ends the proxy and returns when all its connections are closed. It never fails; a second Close does nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.cutLocked()
	p.mu.Unlock()
	p.running.Wait()
	return nil
}

func (p *Proxy) cutLocked() {
	if p.listener != nil {
		_ = closeListener(p.listener)
		p.listener = nil
	}
	for l := range p.links {
		p.closeLocked(l)
	}
}

// dropLostLocked closes the connections that miss bytes.
func (p *Proxy) dropLostLocked() {
	for l := range p.links {
		if l.lost {
			p.closeLocked(l)
		}
	}
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed by Cut or Close
		}
		p.running.Go(func() { p.serve(l, client) })
	}
}
