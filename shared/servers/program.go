package servers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"time"
)

// Program is any other program that listens on loopback and says over HTTP when it is ready, such as Weir's own. It is
// a Process like the servers: it can be killed, restarted on the same ports, and ended.
type Program struct {
	*Process
	ports []*port
}

// ProgramOptions describe a Program. Name, Path, Ports, Args and Ready are required.
type ProgramOptions struct {
	Options // but not Port and Args

	Name string // of the log file, and in errors
	Path string // of the executable

	// Ports is how many to listen on and which: 0 = a free one, which is then kept across restarts.
	Ports []int

	// Args and Ready are given the addresses, host:port, in the order of Ports. Ready returns the URL that answers
	// 200 once the program is ready.
	Args  func(addrs []string) []string
	Ready func(addrs []string) string

	// Env comes after this process's own environment.
	Env []string
}

// StartProgram starts a program and returns when it is ready. ctx bounds the start, not the program's life: end it with
// Stop, which asks it with SIGTERM first if Dir was given.
func StartProgram(ctx context.Context, o ProgramOptions) (*Program, error) {
	p, err := newProcess(o.Name, o.Options)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	prog := &Program{Process: p}
	for _, wanted := range o.Ports {
		prog.ports = append(prog.ports, newPort(wanted))
	}
	p.ports = prog.ports
	p.command = func() *exec.Cmd {
		cmd := exec.Command(o.Path, o.Args(prog.Addrs())...)
		cmd.Env = append(os.Environ(), o.Env...)
		return cmd
	}
	p.probe = func(ctx context.Context) error { return answersOK(ctx, o.Ready(prog.Addrs())) }
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return prog, nil
}

// Addrs are the addresses it listens on, host:port.
func (p *Program) Addrs() []string {
	addrs := make([]string, len(p.ports))
	for i, port := range p.ports {
		addrs[i] = port.addr()
	}
	return addrs
}

// End asks the program to end with SIGTERM and waits for it; one that takes longer than within is killed, and that is
// an error, as is an exit status other than 0. The program can be started again with Restart.
func (p *Process) End(within time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.child.end(within); err != nil {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	if state := p.child.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("end %s: %v", p.name, state)
	}
	return nil
}

func answersOK(ctx context.Context, url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	_, err := call(ctx, client, http.MethodGet, url, "")
	return err
}
