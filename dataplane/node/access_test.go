package node

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/access"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servertls"
	"github.com/weirhq/weir/shared/testcert"
)

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func hashed(token string) string { return fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(token))) }

// Without a valid token no call passes on any port, and neither metrics nor profiles are served. With a token every
// call passes. Health needs no token.
func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "# the gateway's\n"+hashed("first")+"\n"+strings.ToUpper(hashed("second")))
	tokens, err := access.Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, scripted{allow: func(context.Context, dataplane.Request) dataplane.Decision { return dataplane.Decision{Allowed: true} }},
		func(c *Config) { c.Tokens = tokens })

	for _, step := range []struct {
		authorization string
		want          connect.Code
	}{
		{"", connect.CodeUnauthenticated},
		{"Bearer ", connect.CodeUnauthenticated},
		{"Bearer third", connect.CodeUnauthenticated},
		{"Basic first", connect.CodeUnauthenticated},
		{"Bearer first ", connect.CodeUnauthenticated},
		{"Bearer first", 0},
		{"bearer second", 0},
	} {
		for _, door := range doors {
			call := connect.NewRequest(askedOnTheWire)
			call.Header().Set("Authorization", step.authorization)
			_, err := door.open(t, h).Limit(t.Context(), call)
			if got := connect.CodeOf(err); err != nil && got != step.want || err == nil && step.want != 0 {
				if !strings.HasSuffix(step.authorization, " ") { // HTTP trims the header's end
					t.Errorf("%s with %q: %v", door.name, step.authorization, err)
				}
			}
		}
		for _, door := range streamDoors() {
			stream := door.open(t, h).LimitStream(t.Context())
			stream.RequestHeader().Set("Authorization", step.authorization)
			_ = stream.Send(&weirv1.LimitStreamRequest{Request: numbered(1)})
			_, err := stream.Receive()
			if got := connect.CodeOf(err); (err == nil) != (step.want == 0) || err != nil && got != step.want {
				if !strings.HasSuffix(step.authorization, " ") {
					t.Errorf("stream, %s with %q: %v", door.name, step.authorization, err)
				}
			}
			_ = stream.CloseRequest()
			_ = stream.CloseResponse()
		}
	}

	status, header, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal)
	if status != 401 || header.Get("WWW-Authenticate") != "Bearer" || answer != `{"code":"unauthenticated","message":"no bearer token"}` {
		t.Errorf("curl: %d %v %s", status, header, answer)
	}
	for path, want := range map[string]int{"/metrics": 401, "/debug/pprof/": 401, "/debug/pprof/cmdline": 401, "/healthz": 200, "/readyz": 200} {
		if status, _ := get(t, h.adminBase+path); status != want {
			t.Errorf("%s without a token: %d, want %d", path, status, want)
		}
	}
	if status, _, _ := curl(t, h.adminBase+"/metrics", "", "Authorization", "Bearer first"); status != 200 {
		t.Errorf("/metrics with a token: %d", status)
	}

	write(t, path, hashed("third"))
	if changed, err := tokens.Check(); !changed || err != nil {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	_, third := tokens.Admit("Bearer third")
	if _, first := tokens.Admit("Bearer first"); third != nil || first == nil {
		t.Error("changed tokens are not in force")
	}
}

// Health needs no token on the port for gRPC, reflection does.
func TestHealthNeedsNoToken(t *testing.T) {
	h := start(t, scripted{}, withTokens(t, "first"))
	conn := dial(t, h.GRPCAddr().String())
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	reflect := func(ctx context.Context) error {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
		if err != nil {
			return err
		}
		_ = stream.CloseSend()
		return stream.RecvMsg(new(weirv1.LimitRequest))
	}
	if err := reflect(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without a token: %v", err)
	}
	if err := reflect(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer first")); status.Code(err) == codes.Unauthenticated {
		t.Errorf("reflection with one: %v", err)
	}
}

// overTLS calls each port once over a new connection, and returns the serial numbers of the servers' certificates.
func overTLS(t testing.TB, h *harness, config *tls.Config) (serials [3]string, errs [3]error) {
	t.Helper()
	for i, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(i == 0)
		protocols.SetHTTP2(i == 1)
		transport := &http.Transport{Protocols: protocols, TLSClientConfig: config.Clone()}
		response, err := (&http.Client{Transport: transport}).Post("https://"+h.Addr().String()+weirv1connect.RateLimitServiceLimitProcedure, "application/json", strings.NewReader(minimal))
		errs[i] = err
		if err == nil {
			if response.StatusCode != 200 || response.Proto != protocol {
				t.Errorf("%s: status %d over %q", protocol, response.StatusCode, response.Proto)
			}
			serials[i] = response.TLS.PeerCertificates[0].SerialNumber.String()
			_ = response.Body.Close()
		}
		transport.CloseIdleConnections()
	}
	seen := config.Clone()
	seen.VerifyConnection = func(s tls.ConnectionState) error {
		serials[2] = s.PeerCertificates[0].SerialNumber.String()
		return nil
	}
	conn := dial(t, h.GRPCAddr().String(), grpc.WithTransportCredentials(credentials.NewTLS(seen)))
	errs[2] = conn.Invoke(t.Context(), weirv1connect.RateLimitServiceLimitProcedure, askedOnTheWire, new(weirv1.LimitResponse))
	return serials, errs
}

// Calls are served over TLS on both ports. A new certificate applies to the next connection; an invalid certificate
// does not.
func TestTLS(t *testing.T) {
	ours, folder := testcert.New(t), t.TempDir()
	certPath, keyPath := filepath.Join(folder, "cert"), filepath.Join(folder, "key")
	first, next := ours.Issue(t), ours.Issue(t)
	first.Write(t, certPath, keyPath)
	files, err := servertls.Open(certPath, keyPath, "")
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, scripted{}, func(c *Config) { c.TLS = files })
	expect := func(p testcert.Pair) {
		t.Helper()
		serial := p.Serial(t).String()
		serials, errs := overTLS(t, h, &tls.Config{RootCAs: ours.Pool()})
		if serials != [3]string{serial, serial, serial} || errs != [3]error{} {
			t.Errorf("certificates %v, errors %v; want number %s", serials, errs, serial)
		}
	}
	expect(first)
	next.Write(t, certPath, keyPath)
	if changed, err := files.Check(); !changed || err != nil {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	expect(next)
	write(t, keyPath, "no key")
	if _, err := files.Check(); err == nil || !strings.Contains(err.Error(), keyPath) {
		t.Errorf("a faulty key: %v", err)
	}
	expect(next)
	if status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal); status != 400 || strings.Contains(answer, "allowed") {
		t.Errorf("plain HTTP on a port with TLS: %d %s", status, answer)
	}
}

// With authorities for callers, only their certificates open a connection.
func TestMutualTLS(t *testing.T) {
	ours, others, folder := testcert.New(t), testcert.New(t), t.TempDir()
	paths := []string{filepath.Join(folder, "cert"), filepath.Join(folder, "key"), filepath.Join(folder, "ca")}
	ours.Issue(t).Write(t, paths[0], paths[1])
	write(t, paths[2], string(ours.PEM))
	files, err := servertls.Open(paths[0], paths[1], paths[2])
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, scripted{}, func(c *Config) { c.TLS = files })
	for name, step := range map[string]struct {
		by *testcert.Authority
		ok bool
	}{"signed": {ours, true}, "signed by others": {others, false}, "none": {nil, false}} {
		config := &tls.Config{RootCAs: ours.Pool()}
		if step.by != nil {
			own := step.by.Issue(t)
			pair, err := tls.X509KeyPair(own.Certificate, own.Key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		_, errs := overTLS(t, h, config)
		for i, err := range errs {
			if (err == nil) != step.ok {
				t.Errorf("%s certificate, way %d: %v", name, i, err)
			}
		}
	}
	write(t, paths[2], "no authority")
	if _, err := servertls.Open(paths[0], paths[1], paths[2]); err == nil || !strings.Contains(err.Error(), "holds no certificate of an authority") {
		t.Errorf("faulty authorities: %v", err)
	}
}
