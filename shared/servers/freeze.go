package servers

import (
	"fmt"
	"syscall"
)

// Freeze stops the server with SIGSTOP: connections stay open, the kernel takes new ones, and nothing answers. That is
// what a hanging disk or an overloaded machine looks like to a client. A frozen server thaws with Thaw, and can be
// killed, but does not end by itself.
func (p *Process) Freeze() error { return p.deliver(syscall.SIGSTOP) }

// Thaw lets a frozen server go on where it stopped.
func (p *Process) Thaw() error { return p.deliver(syscall.SIGCONT) }

func (p *Process) deliver(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.child.signal(s); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}
