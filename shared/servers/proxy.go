package servers

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy forwards TCP connections to a target and can simulate faults: a dead server, a silent server, a slow server,
// and a server whose replies are lost after it has executed the requests.
//
// Faults affect open and new connections, and last until they are undone separately or with Heal. Bytes that a fault
// swallowed never arrive later: their connection is closed when the fault ends, because a client cannot use a stream
// with missing bytes. All methods are safe for concurrent use.
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

// StartProxy listens on a free port of 127.0.0.1 and forwards everything to target (host:port). The target need not
// exist yet: a connection that cannot be forwarded is closed.
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

// SetTarget sends new connections to another target, as when a name changes its address in a failover. Open connections
// keep their target.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut simulates a dead server: all connections are closed, and new connections are refused.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// SetDelay delays every reply by d. Replies that arrive during a delay are forwarded together after it. A connection
// with one request at a time is delayed by exactly d, and a pipelined connection by at most 2d.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// BlackHole simulates a broken network: connections are accepted, and nothing passes in either direction.
func (p *Proxy) BlackHole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackHole = on
	if !on {
		p.dropLostLocked()
	}
}

// DropReplies simulates lost replies: requests reach the target, which executes them, and its replies are swallowed.
func (p *Proxy) DropReplies(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropReplies = on
	if !on {
		p.dropLostLocked()
	}
}

// Heal undoes every fault. It fails only if another process has taken the port while it was cut, or after Close.
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

// Close ends the proxy and returns when all of its connections are closed. It never fails. A second Close does nothing.
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

// dropLostLocked closes the connections with missing bytes.
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
