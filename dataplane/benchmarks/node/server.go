package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/dataplane/node/nodecmd"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
)

const (
	// serverKind is the environment variable that makes this program a server.
	serverKind = "BENCH_NODE_SERVER"
	// serverRedis is where such a server finds its Redis.
	serverRedis = "BENCH_NODE_REDIS"
)

// Kinds of servers: kinds that this program becomes, and rivals.
const (
	bareEcho      = "bare"
	weir          = "weir"
	weirWithRedis = "weir with Redis"
	gubernator    = "gubernator"
	ratelimit     = "ratelimit"
)

// server is a process that answers, or a process with its Redis.
type server struct {
	http, grpc string
	cpu        func() (time.Duration, error) // of all of its processes so far, in user and system time
	stop       func()
	redis      *servers.Redis // nil for most
}

// startServer starts a server of a kind; rivals is the folder of their programs.
func startServer(ctx context.Context, kind, rivals string) (*server, error) {
	switch kind {
	case gubernator:
		return startGubernator(ctx, rivals)
	case ratelimit:
		return startRatelimit(ctx, rivals)
	case weirWithRedis:
		return withRedis(ctx, func(redis *servers.Redis) (*server, error) {
			return startOwn(ctx, kind, serverRedis+"="+redis.Addr())
		})
	}
	return startOwn(ctx, kind)
}

// withRedis starts a server that needs a Redis, whose CPU time is then part of its own.
func withRedis(ctx context.Context, start func(*servers.Redis) (*server, error)) (*server, error) {
	redis, err := servers.StartRedis(ctx, servers.SystemRedis, servers.Options{})
	if err != nil {
		return nil, err
	}
	s, err := start(redis)
	if err != nil {
		return nil, errors.Join(err, redis.Stop())
	}
	alone, stop := s.cpu, s.stop
	s.redis = redis
	s.cpu = func() (time.Duration, error) {
		mine, err := alone()
		behind, redisErr := cpuOf(redis.PID())
		return mine + behind, errors.Join(err, redisErr)
	}
	s.stop = func() {
		stop()
		_ = redis.Stop()
	}
	return s, nil
}

// startOwn starts this program again, as a server. The child prints its two addresses, HTTP and gRPC, and then its
// CPU time for each line it reads.
func startOwn(ctx context.Context, kind string, environment ...string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process := exec.CommandContext(ctx, self)
	process.Env = append(append(os.Environ(), serverKind+"="+kind), environment...)
	process.Stderr = os.Stderr
	stdin, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stdout := bufio.NewReader(out)
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start the server %s: %w", kind, err)
	}
	s := &server{
		cpu:  func() (time.Duration, error) { return askCPU(stdin, stdout) },
		stop: func() { _ = stdin.Close(); _ = process.Wait() }, // its input's end is its own
	}
	line, err := stdout.ReadString('\n')
	if _, scanErr := fmt.Sscan(line, &s.http, &s.grpc); err != nil || scanErr != nil {
		s.stop()
		return nil, fmt.Errorf("server %s does not say where it is: %q", kind, line)
	}
	return s, nil
}

func askCPU(stdin io.Writer, stdout *bufio.Reader) (time.Duration, error) {
	if _, err := io.WriteString(stdin, "\n"); err != nil {
		return 0, fmt.Errorf("ask the server for its CPU time: %w", err)
	}
	line, err := stdout.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("read the server's CPU time: %w", err)
	}
	nanos, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Duration(nanos), err
}

// serve runs the child: a server of some kind, until stdin ends.
func serve(kind string) error {
	folder, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	kinds := map[string]func(folder string) (http, grpc net.Addr, err error){
		bareEcho: serveBare, weir: serveWeir, weirWithRedis: serveWeir}
	start, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("no server is called %q", kind)
	}
	httpAddr, grpcAddr, err := start(folder)
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

// bareLimit returns the same response to each request, as a handler that is generated for grpc-go does.
var bareLimit = grpc.ServiceDesc{
	ServiceName: weirv1connect.RateLimitServiceName,
	Methods: []grpc.MethodDesc{{
		MethodName: path.Base(weirv1connect.RateLimitServiceLimitProcedure),
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			if err := decode(new(weirv1.LimitRequest)); err != nil {
				return nil, err
			}
			return &weirv1.LimitResponse{Allowed: true, Limit: 1e15, Remaining: 1e15 - 1, ResetAtMs: 1_795_203_540_000,
				Current: 1, Source: weirv1.Source_SOURCE_LOCAL}, nil
		},
	}},
}

// bareRLS returns the same response to each request of Envoy.
type bareRLS struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (bareRLS) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

func serveBare(string) (httpAddr, grpcAddr net.Addr, err error) {
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
	server.RegisterService(&bareLimit, nil)
	rlsv3.RegisterRateLimitServiceServer(server, bareRLS{})
	go func() { fail(server.Serve(forGRPC)) }()
	return forHTTP.Addr(), forGRPC.Addr(), nil
}

const rules = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
`

// serveWeir runs the unchanged command weir-node, with Envoy's rules: in memory or with a Redis. It ends with the
// process.
func serveWeir(folder string) (httpAddr, grpcAddr net.Addr, err error) {
	file := filepath.Join(folder, "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		return nil, nil, err
	}
	args := []string{"--rls-rules=" + file, "--listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0",
		"--admin-listen=127.0.0.1:0"}
	if redis := os.Getenv(serverRedis); redis != "" {
		args = append(args, "--region=eu", "--redis-url=redis://"+redis)
	}
	log, stderr := io.Pipe()
	go func() {
		code := nodecmd.Main(context.Background(), args, io.Discard, stderr)
		_ = stderr.CloseWithError(fmt.Errorf("weir-node ended with exit code %d", code))
	}()
	return awaitServing(log)
}

// awaitServing reads a log of weir-node up to the addresses at which it serves. Then it reads on, so that the node
// never waits for its log.
func awaitServing(log io.Reader) (httpAddr, grpcAddr net.Addr, err error) {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, nil, fmt.Errorf("read weir-node's log: %w", err)
		}
		var event struct {
			Msg        string         `json:"msg"`
			Listen     netip.AddrPort `json:"listen"`
			GRPCListen netip.AddrPort `json:"grpc_listen"`
		}
		if json.Unmarshal(line, &event) == nil && event.Msg == "serving" {
			go func() { _, _ = io.Copy(io.Discard, lines) }()
			return net.TCPAddrFromAddrPort(event.Listen), net.TCPAddrFromAddrPort(event.GRPCListen), nil
		}
	}
}
