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

// Redis is a running server of any kind that speaks Redis' protocol. It writes nothing to disk, even into a given
// directory. After Kill and Restart it is empty, like an origin that has lost its data.
type Redis struct {
	*Process
	port *port
}

// StartRedis starts a server of a kind and returns when it answers. ctx bounds only the start. End the server with
// Stop.
func StartRedis(ctx context.Context, kind RedisKind, o Options) (*Redis, error) {
	program, err := FindRedis(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	p, err := newProcess(string(kind), o)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
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

// probe checks the server's process ID, because another server can have taken the port first. It sends a single command
// over a plain connection and needs no client.
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
	return fmt.Errorf("the server on %s did not return its process ID: %w", r.Addr(), errors.Join(lines.Err()))
}
