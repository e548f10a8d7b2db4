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

// Program is any other program that listens on loopback and reports over HTTP when it is ready, for example Weir's own.
// It is a Process like the servers: it can be killed, restarted on the same ports, and ended.
type Program struct {
	*Process
	ports []*port
}

// ProgramOptions describe a Program. Name, Path, Ports, Args and Ready are required.
type ProgramOptions struct {
	Options // but not Port and Args

	Name string // of the log file, and in errors
	Path string // of the executable

	// Ports are the ports to listen on. 0 means a free port, which stays the same across restarts.
	Ports []int

	// Args and Ready get the addresses (host:port) in the order of Ports. Ready returns the URL that responds with 200
	// once the program is ready.
	Args  func(addrs []string) []string
	Ready func(addrs []string) string

	// Env is added to this process's environment.
	Env []string
}

// StartProgram starts a program and returns when it is ready. ctx bounds only the start. End the program with Stop,
// which sends SIGTERM first if Dir was given.
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

// Addrs returns the addresses on which it listens (host:port).
func (p *Program) Addrs() []string {
	addrs := make([]string, len(p.ports))
	for i, port := range p.ports {
		addrs[i] = port.addr()
	}
	return addrs
}

// End sends SIGTERM to the program and waits until it ends. If that takes longer than within, the program is killed,
// and End returns an error, as it does for an exit status other than 0. The program can be started again with Restart.
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
