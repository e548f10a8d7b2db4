package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node"
	"github.com/weirhq/weir/dataplane/node/rls"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// serverKind is the environment variable that makes this program a server.
const serverKind = "BENCH_NODE_SERVER"

// server is a child process. It prints its two addresses, HTTP and gRPC, and then its
// CPU time for each line it reads.
type server struct {
	process    *exec.Cmd
	stdin      io.WriteCloser
	stdout     *bufio.Reader
	http, grpc string
}

func startServer(ctx context.Context, kind string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{process: exec.CommandContext(ctx, self)}
	s.process.Env = append(os.Environ(), serverKind+"="+kind)
	s.process.Stderr = os.Stderr
	if s.stdin, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.stdout = bufio.NewReader(out)
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start the server %s: %w", kind, err)
	}
	line, err := s.stdout.ReadString('\n')
	if _, scanErr := fmt.Sscan(line, &s.http, &s.grpc); err != nil || scanErr != nil {
		s.stop()
		return nil, fmt.Errorf("server %s does not say where it is: %q", kind, line)
	}
	return s, nil
}

// cpu is what the server's process has used so far, in user and system time.
func (s *server) cpu() (time.Duration, error) {
	if _, err := io.WriteString(s.stdin, "\n"); err != nil {
		return 0, fmt.Errorf("ask the server for its CPU time: %w", err)
	}
	line, err := s.stdout.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("read the server's CPU time: %w", err)
	}
	nanos, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Duration(nanos), err
}

// stop ends the server by closing its input.
func (s *server) stop() {
	_ = s.stdin.Close()
	_ = s.process.Wait()
}

// serve is the child: a server of some kind until stdin ends.
func serve(kind string) error {
	kinds := map[string]func() (http, grpc net.Addr, err error){"bare": serveBare, "weir": serveWeir}
	start, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("no server is called %q", kind)
	}
	httpAddr, grpcAddr, err := start()
	if err != nil {
		return err
	}
	fmt.Println(httpAddr, grpcAddr)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			return err
		}
		fmt.Println(used.Utime.Nano() + used.Stime.Nano())
	}
	return nil
}

// bare and bareRLS answer always the same, by what the libraries do by themselves.
type (
	bare struct {
		weirv1.UnimplementedRateLimitServiceServer
	}
	bareRLS struct {
		rlsv3.UnimplementedRateLimitServiceServer
	}
)

func (bare) Limit(context.Context, *weirv1.LimitRequest) (*weirv1.LimitResponse, error) {
	return &weirv1.LimitResponse{Allowed: true, Limit: 1e15, Remaining: 1e15 - 1, ResetAtMs: 1_795_203_540_000, Current: 1, Source: weirv1.Source_SOURCE_LOCAL}, nil
}

func (bareRLS) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

func serveBare() (httpAddr, grpcAddr net.Addr, err error) {
	forHTTP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	forGRPC, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	echo := http.NewServeMux()
	echo.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
	go func() { fail((&http.Server{Handler: echo}).Serve(forHTTP)) }()
	server := grpc.NewServer()
	weirv1.RegisterRateLimitServiceServer(server, bare{})
	rlsv3.RegisterRateLimitServiceServer(server, bareRLS{})
	go func() { fail(server.Serve(forGRPC)) }()
	return forHTTP.Addr(), forGRPC.Addr(), nil
}

const rules = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
`

// serveWeir is weir-node with its own configuration, in memory.
func serveWeir() (httpAddr, grpcAddr net.Addr, err error) {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		return nil, nil, err
	}
	folder, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(folder, "rules.yaml")
	err = os.WriteFile(path, []byte(rules), 0o600)
	source, openErr := rls.OpenRules(path)
	if err := errors.Join(err, openErr, os.RemoveAll(folder)); err != nil {
		return nil, nil, err
	}
	s, err := node.New(node.Config{
		Limiter: limiter, Listen: "127.0.0.1:0", GRPCListen: "127.0.0.1:0", AdminListen: "127.0.0.1:0",
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		RLS: &rls.Service{Limiter: limiter, Rules: source, Workspace: "envoy"},
	})
	if err != nil {
		return nil, nil, err
	}
	if err := s.Start(context.Background()); err != nil {
		return nil, nil, err
	}
	return s.Addr(), s.GRPCAddr(), nil
}
