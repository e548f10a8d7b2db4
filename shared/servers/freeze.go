package servers

import (
	"fmt"
	"syscall"
)

// Freeze stops the server with SIGSTOP: connections stay open, the kernel accepts new connections, and nothing answers.
// For a client this looks like a hanging disk or an overloaded machine. Thaw continues a frozen server. A frozen server
// can be killed, but does not end by itself.
func (p *Process) Freeze() error { return p.deliver(syscall.SIGSTOP) }

// Thaw continues a frozen server.
func (p *Process) Thaw() error { return p.deliver(syscall.SIGCONT) }

func (p *Process) deliver(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.child.signal(s); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}
