package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// Redis is a running Redis server. It writes nothing to disk, even into a directory that was given: after Kill and
// Restart it is empty, which is what losing an origin looks like.
type Redis struct {
	*Process
	port *port
}

// StartRedis starts a server and returns when it answers. ctx bounds the start, not the server's life: end it with
// Stop.
func StartRedis(ctx context.Context, o Options) (*Redis, error) {
	program, err := FindRedis()
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	p, err := newProcess("redis", o)
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	r := &Redis{Process: p, port: newPort(o.Port)}
	p.ports = []*port{r.port}
	p.command, p.probe = r.command(program, o.Args), r.probe
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return r, nil
}

func (r *Redis) command(program string, args []string) func() *exec.Cmd {
	return func() *exec.Cmd {
		return exec.Command(program, append([]string{
			"--bind", "127.0.0.1",
			"--port", strconv.Itoa(r.port.number),
			"--dir", r.Dir(),
			"--save", "",
			"--appendonly", "no",
		}, args...)...)
	}
}

// Addr returns host:port.
func (r *Redis) Addr() string { return r.port.addr() }

// probe asks the server for its process id: another one may have taken the port first. One command over a plain
// connection is all that is needed, so no client is.
func (r *Redis) probe(ctx context.Context) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", r.Addr())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("INFO server\r\n")); err != nil {
		return err
	}
	ours := "process_id:" + strconv.Itoa(r.child.cmd.Process.Pid)
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch line := strings.TrimSpace(lines.Text()); {
		case line == ours:
			return nil
		case strings.HasPrefix(line, "process_id:"), strings.HasPrefix(line, "-"):
			return fmt.Errorf("the server on %s answers %q, not %q", r.Addr(), line, ours)
		}
	}
	return fmt.Errorf("the server on %s did not say its process id: %w", r.Addr(), errors.Join(lines.Err()))
}
