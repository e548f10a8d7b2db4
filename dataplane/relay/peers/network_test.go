package peers_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

var (
	errUnreachable = errors.New("no route to host")
	errTaken       = errors.New("address already in use")
)

// network is a network in memory, on which bytes take delay between the ends of a connection.
type network struct {
	delay time.Duration

	mu        sync.Mutex
	down      bool
	taken     bool // all addresses are in use
	listeners map[string]*listener
	open      map[*wire]struct{}
	dialed    map[string]int // number of dials, by address
	running   sync.WaitGroup
	hosts     map[string][]string // addresses by host name; a missing name stands for itself
}

func newNetwork(delay time.Duration) *network {
	return &network{delay: delay, listeners: map[string]*listener{}, open: map[*wire]struct{}{}, dialed: map[string]int{}}
}

// cut drops all connections and refuses new connections until mend is called.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for w := range n.open {
		w.close()
	}
	clear(n.open)
}

func (n *network) mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

func (n *network) Listen(_ context.Context, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken {
		return nil, errTaken
	}
	l := &listener{address: address, accepted: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

func (n *network) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l, down := n.listeners[address], n.down
	n.dialed[address]++
	n.mu.Unlock()
	if l == nil || down {
		return nil, fmt.Errorf("dial %s: %w", address, errUnreachable)
	}
	client, server := n.connect()
	select {
	case l.accepted <- server:
		return client, nil
	case <-l.closed:
	case <-ctx.Done():
	}
	_ = client.Close()
	return nil, errUnreachable
}

// dials returns the number of attempts to connect to an address.
func (n *network) dials(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialed[address]
}

// wire is the middle of a connection: two pipes, and the goroutines between them.
type wire struct {
	ends [4]net.Conn
}

func (n *network) connect() (client, server net.Conn) {
	w := &wire{}
	w.ends[0], w.ends[1] = net.Pipe()
	w.ends[2], w.ends[3] = net.Pipe()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[w] = struct{}{}
	n.running.Go(func() { n.carry(w, w.ends[1], w.ends[2]) })
	n.running.Go(func() { n.carry(w, w.ends[2], w.ends[1]) })
	return w.ends[0], w.ends[3]
}

func (w *wire) close() {
	for _, end := range w.ends {
		_ = end.Close()
	}
}

type chunk struct {
	bytes []byte
	due   time.Time
}

func (n *network) carry(w *wire, from, to net.Conn) {
	sent := make(chan chunk, 64)
	n.running.Go(func() {
		defer w.close()
		for c := range sent {
			<-time.After(time.Until(c.due))
			_, _ = to.Write(c.bytes)
		}
	})
	defer close(sent)
	for {
		b := make([]byte, 16<<10)
		read, err := from.Read(b)
		if err != nil {
			return
		}
		sent <- chunk{b[:read], time.Now().Add(n.delay)}
	}
}

// wait returns when all connections have ended.
func (n *network) wait() { n.running.Wait() }

type listener struct {
	address  string
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return address(l.address) }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }
