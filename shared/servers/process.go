package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// startTimeout bounds a start whose context has no earlier deadline. A server that dies ends its start immediately, so
	// this bound is for a server that hangs. It is longer than any start on a machine with twenty times the work that it
	// has cores for.
	startTimeout = 5 * time.Minute
	// stopTimeout is the time in which a server must end by itself before it is killed.
	stopTimeout = 10 * time.Second
	// probeTimeout bounds a readiness probe. A probe that gets no answer is repeated.
	probeTimeout = 5 * time.Second
	probeEvery   = 5 * time.Millisecond
	// portAttempts is the number of ports that are tried if the caller chose none.
	portAttempts = 5
)

var (
	errExited    = errors.New("the server exited")
	errPortTaken = errors.New("port already in use")
	errStopped   = errors.New("already stopped")
)

// Process is the common part of all servers in this package: a child process, the directory with its data, and its
// ports. The directory and the ports stay the same for the life of the Process.
//
// All methods are safe for concurrent use. Kill, Restart and Stop run one after the other.
type Process struct {
	name  string
	dir   *directory
	log   *os.File
	ports []*port
	// command builds the command line for the current ports.
	command func() *exec.Cmd
	// probe returns nil once this server answers requests, and not another server on its port.
	probe func(ctx context.Context) error

	mu      sync.Mutex // held during all of a Kill, Restart and Stop
	child   *child     // nil before the first start
	stopped bool
}

// Dir returns the directory with the server's data and log. The log is named after the server; each start creates it,
// and each restart appends to it.
func (p *Process) Dir() string { return p.dir.path }

// PID returns the process ID of the running child, or else of the last child.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.cmd.Process.Pid
}

// Exited returns a channel that is closed when the current child has ended for any reason. After a Restart you must
// call Exited again.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.running.Done()
}

// Kill ends the server with SIGKILL, as a crash would, and returns when it is gone. The data and the ports stay for
// Restart. Killing a dead server does nothing.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.child.kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	return nil
}

// Restart starts the server again on the same data and ports, and returns when it answers. A running server is first
// ended with SIGTERM. ctx bounds only the start.
func (p *Process) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return fmt.Errorf("restart %s: %w", p.name, errStopped)
	}
	if err := p.child.end(stopTimeout); err != nil {
		return fmt.Errorf("restart %s: %w", p.name, err)
	}
	return p.launch(ctx)
}

// Stop ends the server permanently. A server with a temporary directory is killed, because none of its data is kept,
// and the directory is removed. A server with a given directory gets SIGTERM, and is killed only if it does not end
// within ten seconds. A second Stop does nothing.
func (p *Process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.stopped = true
	var err error
	if p.child != nil && p.dir.temporary() {
		err = p.child.kill()
	} else if p.child != nil {
		err = p.child.end(stopTimeout)
	}
	if err = errors.Join(err, p.log.Close(), p.dir.release()); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return nil
}

// start is the first start. It chooses ports, and chooses again if another process was faster to take a port.
func (p *Process) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for attempt := 1; ; attempt++ {
		chosen, err := choose(p.ports)
		if err != nil {
			return fmt.Errorf("start %s: %w", p.name, err)
		}
		err = p.launch(ctx)
		if err == nil || !chosen || attempt == portAttempts || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

// launch starts a child and waits until it answers. If the child does not answer, it is gone when launch returns.
func (p *Process) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := allFree(p.ports); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	cmd := p.command()
	cmd.Dir = p.dir.path
	cmd.Stdout, cmd.Stderr = p.log, p.log
	c, err := spawn(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.child = c
	err = p.await(ctx, c)
	if err == nil {
		return nil
	}
	err = errors.Join(err, c.kill()) // before reading its log, so that the log is whole
	tail := p.logTail()
	if errors.Is(err, errExited) && saysPortTaken(tail) {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return fmt.Errorf("start %s: %w\nend of its log:\n%s", p.name, err, tail)
}

// await polls until the server answers, dies, or ctx ends.
func (p *Process) await(ctx context.Context, c *child) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		probing, cancel := context.WithTimeout(ctx, probeTimeout)
		stop := context.AfterFunc(c.running, cancel) // another process on our port may never answer
		err := p.probe(probing)
		stop()
		cancel()
		select {
		case <-c.running.Done(): // even if a server answered, because it was not our child
			return fmt.Errorf("%w before it was ready (%s)", errExited, c.state())
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-c.running.Done():
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w; last probe: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// saysPortTaken recognizes EADDRINUSE in the logs of MariaDB and Redis ("already in use") and of Restate ("in use").
func saysPortTaken(log string) bool {
	log = strings.ToLower(log)
	return strings.Contains(log, "address in use") || strings.Contains(log, "address already in use")
}

// Options are common to all servers. The zero value is a server on a free port with a temporary directory.
type Options struct {
	// Dir has the server's data. It is created if it is missing, reused if it has data, and never removed. Empty means a
	// temporary directory, which Stop removes.
	Dir string
	// Port is the server's port on 127.0.0.1. 0 means a free port, which stays the same across restarts.
	Port int
	// Args are appended to the server's command line. If a flag appears twice, the last value counts.
	Args []string
}

// newProcess prepares the directory and the log. The caller must add ports, command and probe.
func newProcess(name string, o Options) (*Process, error) {
	dir, err := openDirectory(name, o.Dir)
	if err != nil {
		return nil, err
	}
	log, err := openLog(filepath.Join(dir.path, name+".log"))
	if err != nil {
		return nil, errors.Join(err, dir.release())
	}
	return &Process{name: name, dir: dir, log: log}, nil
}
