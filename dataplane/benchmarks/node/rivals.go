package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// rivalPrograms are where each is built: a module that pins it, so that none gets another's requirements.
var rivalPrograms = map[string]struct{ module, program string }{
	gubernator: {"../gubernator", "./cmd/daemon"},
	ratelimit:  {"../ratelimit", "github.com/envoyproxy/ratelimit/src/service_cmd"},
}

// buildRivals builds the programs of the given kinds of servers into a folder. The first build takes minutes, later
// builds only link.
func buildRivals(ctx context.Context, folder string, kinds map[string]bool) error {
	for kind, p := range rivalPrograms {
		if !kinds[kind] {
			continue
		}
		fmt.Fprintf(os.Stderr, "node: building %s\n", kind)
		build := exec.CommandContext(ctx, "go", "-C", p.module, "build", "-o", filepath.Join(folder, kind), p.program)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build %s in %s: %w", kind, p.module, err)
		}
	}
	return nil
}

// startGubernator starts a single node that owns every key.
func startGubernator(ctx context.Context, folder string) (*server, error) {
	at, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	s := &server{http: at[0], grpc: at[1]}
	if err := s.startRival(ctx, filepath.Join(folder, gubernator),
		"GUBER_HTTP_ADDRESS="+at[0], "GUBER_GRPC_ADDRESS="+at[1], "GUBER_LOG_LEVEL=error"); err != nil {
		return nil, err
	}
	if err := s.awaitAnswer(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("start %s: %w", gubernator, err)
	}
	return s, nil
}

// awaitAnswer returns when gubernator has found itself: it listens for a moment before it has an owner for each key.
func (s *server) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rivalStartMax)
	defer cancel()
	one, err := getRateLimits(1)(ctx, s, 1)
	if err != nil {
		return err
	}
	defer one.close()
	for {
		err := one.call[0](ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// startRatelimit starts envoyproxy/ratelimit with the rules that weir-node has, and a Redis of its own. The rest
// has its defaults, except statistics, which it would send to a statsd.
func startRatelimit(ctx context.Context, folder string) (*server, error) {
	return withRedis(ctx, func(redis *servers.Redis) (*server, error) {
		at, err := freeAddresses(3)
		if err != nil {
			return nil, err
		}
		config := filepath.Join(redis.Dir(), "ratelimit", "config")
		if err := os.MkdirAll(config, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(config, "edge.yaml"), []byte(rules), 0o600); err != nil {
			return nil, err
		}
		s := &server{http: at[0], grpc: at[1]}
		environment := []string{
			"RUNTIME_ROOT=" + redis.Dir(), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr(), "USE_STATSD=false", "LOG_LEVEL=error",
		}
		for i, name := range []string{"", "GRPC_", "DEBUG_"} {
			host, port, _ := net.SplitHostPort(at[i])
			environment = append(environment, name+"HOST="+host, name+"PORT="+port)
		}
		return s, s.startRival(ctx, filepath.Join(folder, ratelimit), environment...)
	})
}

// startRival returns when the process takes connections. The process is killed in the end: nothing of it is kept.
func (s *server) startRival(ctx context.Context, path string, environment ...string) error {
	ctx, end := context.WithCancel(ctx)
	process := exec.CommandContext(ctx, path)
	process.Env = append(os.Environ(), environment...)
	var log strings.Builder
	process.Stdout, process.Stderr = &log, &log
	if err := process.Start(); err != nil {
		end()
		return fmt.Errorf("start %s: %w", path, err)
	}
	ended := make(chan struct{})
	go func() { _ = process.Wait(); close(ended) }()
	s.cpu = func() (time.Duration, error) { return cpuOf(process.Process.Pid) }
	s.stop = func() { end(); <-ended }
	if err := awaitListener(ctx, s.grpc, ended); err != nil {
		s.stop()
		return fmt.Errorf("start %s: %w; it says:\n%s", path, err, log.String())
	}
	return nil
}

const rivalStartMax = 30 * time.Second

func awaitListener(ctx context.Context, address string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, rivalStartMax)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		select {
		case <-ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freeAddresses returns addresses on loopback that were free a moment ago, because rivals cannot choose an address and
// print it.
func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		addresses = append(addresses, net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)))
	}
	return addresses, nil
}
