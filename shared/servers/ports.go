package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Ports are chosen below the range that kernels use for outgoing connections (from 32768 on Linux, 49152 on macOS). So
// no connection takes a server's port while the server is down between Kill and Restart.
const (
	portFirst = 15000
	portLast  = 32000
)

// port is a TCP port of a server on 127.0.0.1.
type port struct {
	number int
	// fixed: the caller chose this number, so no other may be used.
	fixed bool
	// draw proposes a number; nil = freePort.
	draw func() (int, error)
}

func newPort(wanted int) *port { return &port{number: wanted, fixed: wanted != 0} }

func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// choose gives every port that is not fixed a new number, and reports whether there was such a port.
func choose(ports []*port) (chosen bool, err error) {
	for _, p := range ports {
		if p.fixed {
			continue
		}
		draw := p.draw
		if draw == nil {
			draw = freePort
		}
		if p.number, err = draw(); err != nil {
			return false, err
		}
		chosen = true
	}
	return chosen, nil
}

// freePort returns a port on which no process listened a moment ago. Another process can take it first, so a caller
// that fails to bind it should try again with another port.
func freePort() (int, error) {
	var last error
	for range 100 {
		number := portFirst + rand.IntN(portLast-portFirst)
		if last = tryListen(number); last == nil {
			return number, nil
		}
	}
	return 0, fmt.Errorf("find a free port between %d and %d: %w", portFirst, portLast, last)
}

// allFree returns an error for a port that is taken, before a server tries. A server of the same kind could listen
// there and answer the probes. A caller that starts two servers on the same ports gets an error instead of a second
// handle on the first server.
func allFree(ports []*port) error {
	for _, p := range ports {
		if err := tryListen(p.number); err != nil {
			return fmt.Errorf("%w: %w", errPortTaken, err)
		}
	}
	return nil
}

func tryListen(number int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(number)))
	if err != nil {
		return err
	}
	return closeListener(l)
}

// closeListener closes l completely. A child that is being forked at the same time would hold a copy until it execs,
// and accept connections in that moment.
func closeListener(l net.Listener) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return l.Close()
}
