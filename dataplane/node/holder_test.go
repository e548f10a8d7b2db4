package node

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
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
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servertls"
	"github.com/weirhq/weir/shared/testcert"
)

// On every protocol a stream ends when its token is removed from the file, with the reason. Streams of other tokens
// continue.
func TestAStreamEndsWithItsToken(t *testing.T) {
	tokens, path := openScoped(t, "kept\nrevoked\nnarrowed\n")
	h := start(t, scripted{}, func(c *Config) {
		c.Tokens, c.Reloads = tokens, []Reload{{Name: "tokens", Check: tokens.Check, Soon: true}}
	})
	type conversation = *connect.BidiStreamForClient[weirv1.LimitStreamRequest, weirv1.LimitStreamResponse]
	streams := make(map[string][]conversation)
	for _, token := range []string{"kept", "revoked", "narrowed"} {
		for _, door := range streamDoors() {
			stream := door.open(t, h).LimitStream(t.Context())
			stream.RequestHeader().Set("Authorization", "Bearer "+token)
			if err := stream.Send(&weirv1.LimitStreamRequest{Request: numbered(1)}); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Receive(); err != nil {
				t.Fatalf("%s with the token %s: %v", door.name, token, err)
			}
			streams[token] = append(streams[token], stream)
		}
	}
	write(t, path, hashedLines("kept workspaces=acme\nnarrowed workspaces=other actions=read\n"))
	for token, want := range map[string]connect.Code{"revoked": connect.CodeUnauthenticated,
		"narrowed": connect.CodePermissionDenied} {
		for i, stream := range streams[token] { // which is silent: nothing but the change wakes it
			if _, err := stream.Receive(); connect.CodeOf(err) != want {
				t.Errorf("%s with the token %s: %v, want %v", streamDoors()[i].name, token, err, want)
			}
			_ = stream.CloseRequest()
			_ = stream.CloseResponse()
		}
	}
	for i, stream := range streams["kept"] {
		if err := stream.Send(&weirv1.LimitStreamRequest{Request: numbered(1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Receive(); err != nil {
			t.Errorf("%s with a token that is kept: %v", streamDoors()[i].name, err)
		}
		elsewhere := numbered(1)
		elsewhere.Workspace = "other"
		_ = stream.Send(&weirv1.LimitStreamRequest{Request: elsewhere, Number: 7})
		answer, err := stream.Receive()
		if err != nil || answer.GetProblem().GetCode() != "permission_denied" || answer.GetNumber() != 7 {
			t.Errorf("%s, a workspace that the token has lost: %v, %v", streamDoors()[i].name, answer, err)
		}
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
	}
	await.True(t, "no stream is left", func() bool {
		h.gate.open.Lock()
		defer h.gate.open.Unlock()
		return len(h.gate.standing) == 0
	})
}

// Reflection ends with its token too. A watch of health, which needs no token, continues.
func TestReflectionEndsWithItsToken(t *testing.T) {
	tokens, path := openScoped(t, "kept\nrevoked\n")
	h := start(t, scripted{}, func(c *Config) {
		c.Tokens, c.Reloads = tokens, []Reload{{Name: "tokens", Check: tokens.Check, Soon: true}}
	})
	conn := dial(t, h.GRPCAddr().String())
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer revoked")
	reflection, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := reflection.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := reflection.Recv(); err != nil {
		t.Fatal(err)
	}
	watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	write(t, path, hashedLines("kept\n"))
	if _, err := reflection.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection of a token that was taken out: %v", err)
	}
	h.grpc.enter(draining)
	if answer, err := watch.Recv(); err != nil || answer.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the watch of health: %v, %v", answer, err)
	}
}

// From its expiry a token is rejected like an unknown token, and its streams end.
func TestATokenExpires(t *testing.T) {
	before, after := time.Date(2029, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	now, path := before, filepath.Join(t.TempDir(), "tokens")
	write(t, path, hashedLines("brief expires=2030-01-01T00:00:00Z\nlasting\n"))
	tokens, err := access.Open(path, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	h := prepare(t, scripted{}, func(c *Config) { c.Tokens = tokens })
	brief := credentialsOf{procedure: streamProcedure, authorization: "Bearer brief"}
	by, err := h.gate.judge(&brief)
	if err != nil {
		t.Fatal(err)
	}
	stream := h.gate.stand(brief, by)
	h.gate.judgeAgain(before)
	if len(stream.over) > 0 {
		t.Errorf("before its end: %v", <-stream.over)
	}
	now = after
	h.gate.judgeAgain(after)
	select {
	case err := <-stream.over:
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Error(err)
		}
	default:
		t.Error("the stream of a token that has expired goes on")
	}
	if len(h.gate.standing) != 0 {
		t.Error("a stream that has ended is judged again: nobody may be left to read why it ends")
	}
	_, expired := tokens.Admit("Bearer brief")
	_, unknown := tokens.Admit("Bearer unknown")
	if expired == nil || unknown == nil || expired.Error() != unknown.Error() {
		t.Errorf("a token that has expired: %v; one that is unknown: %v", expired, unknown)
	}
}

// A token that is taken out of the file while its call is let in ends the stream that the call opens.
func TestAStreamThatOpensWhileItsTokenGoesEnds(t *testing.T) {
	tokens, path := openScoped(t, "revoked\nkept\n")
	h := prepare(t, scripted{}, func(c *Config) { c.Tokens = tokens })
	revoked := credentialsOf{procedure: streamProcedure, authorization: "Bearer revoked"}
	by, err := h.gate.judge(&revoked)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, hashedLines("kept\n"))
	if _, err := tokens.Check(); err != nil {
		t.Fatal(err)
	}
	h.gate.judgeAgain(time.Now()) // before the stream is there
	stream := h.gate.stand(revoked, by)
	h.gate.judgeAgain(time.Now())
	if len(stream.over) != 1 {
		t.Error("the stream goes on")
	}
}

// When the tokens file changes, the calls of a token keep their part of the token's share.
func TestATokenKeepsItsShareAcrossChanges(t *testing.T) {
	tokens, path := openScoped(t, "one\ntwo\n")
	before, err := tokens.Admit("Bearer two")
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, hashedLines("two workspaces=acme\nthree\n"))
	if _, err := tokens.Check(); err != nil {
		t.Fatal(err)
	}
	if after, err := tokens.Admit("Bearer two"); err != nil || after.Caller != before.Caller {
		t.Errorf("another caller, error %v", err)
	}
}

// A connection whose certificate is no longer accepted ends: its calls and its streams, on both ports. The caller comes
// back with a new certificate. Over gRPC the caller is grpc-go's own client.
func TestAConnectionEndsWithItsAuthority(t *testing.T) {
	ours, former, next, folder := testcert.New(t), testcert.New(t), testcert.New(t), t.TempDir()
	paths := []string{filepath.Join(folder, "cert"), filepath.Join(folder, "key"), filepath.Join(folder, "ca")}
	ours.Issue(t).Write(t, paths[0], paths[1])
	write(t, paths[2], string(former.PEM)+string(next.PEM))
	files, err := servertls.Open(paths[0], paths[1], paths[2])
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, scripted{}, func(c *Config) {
		c.TLS, c.Reloads = files, []Reload{{Name: "certificates", Check: files.Check, Soon: true}}
	})
	pair := keyPair(t, former.Issue(t, "client"))
	config := &tls.Config{RootCAs: ours.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate,
		error) {
		return &pair, nil
	}}
	transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	overHTTP := func() int {
		response, err := (&http.Client{Transport: transport}).Post("https://"+h.Addr().String()+
			weirv1connect.RateLimitServiceLimitProcedure, "application/json", strings.NewReader(minimal))
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	conn := dial(t, h.GRPCAddr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	limit := func() error {
		return conn.Invoke(t.Context(), weirv1connect.RateLimitServiceLimitProcedure, askedOnTheWire,
			new(weirv1.LimitResponse))
	}
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		weirv1connect.RateLimitServiceLimitStreamProcedure)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&weirv1.LimitStreamRequest{Request: numbered(1)}); err != nil {
		t.Fatal(err)
	}
	answer := new(weirv1.LimitStreamResponse)
	if err := stream.RecvMsg(answer); err != nil || answer.GetResponse() == nil {
		t.Fatalf("the stream's first answer: %v, error %v", answer, err)
	}
	if code := overHTTP(); code != http.StatusOK {
		t.Fatalf("over HTTP: %d", code)
	}
	write(t, paths[2], string(next.PEM))
	if err := stream.RecvMsg(new(weirv1.LimitStreamResponse)); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream: %v", err)
	}
	if code := overHTTP(); code != http.StatusServiceUnavailable {
		t.Errorf("a call on the connection over HTTP: %d, want 503", code)
	}
	if err := limit(); status.Code(err) != codes.Unavailable {
		t.Errorf("a call on the connection by gRPC: %v", err)
	}
	pair = keyPair(t, next.Issue(t, "client"))
	await.True(t, "calls with a new certificate pass", func() bool { return limit() == nil })
	transport.TLSClientConfig.GetClientCertificate = config.GetClientCertificate
	await.True(t, "and over HTTP", func() bool { return overHTTP() == http.StatusOK })
}

func keyPair(t testing.TB, p testcert.Pair) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// A certificate that has expired since its connection began is refused, for calls and for open streams.
func TestACertificateExpiresOnAnOpenConnection(t *testing.T) {
	ours, folder := testcert.New(t), t.TempDir()
	paths := []string{filepath.Join(folder, "cert"), filepath.Join(folder, "key"), filepath.Join(folder, "ca")}
	ours.Issue(t).Write(t, paths[0], paths[1])
	write(t, paths[2], string(ours.PEM))
	files, err := servertls.Open(paths[0], paths[1], paths[2])
	if err != nil {
		t.Fatal(err)
	}
	h := prepare(t, scripted{}, func(c *Config) { c.TLS = files })
	state := func(notAfter time.Time) *tls.ConnectionState {
		issued := ours.IssueLike(t, func(c *x509.Certificate) { c.NotAfter = notAfter }, "client")
		chain := []*x509.Certificate{certificateIn(t, issued.Certificate), certificateIn(t, ours.PEM)}
		return &tls.ConnectionState{PeerCertificates: chain[:1], VerifiedChains: [][]*x509.Certificate{chain}}
	}
	valid := credentialsOf{procedure: streamProcedure, tls: state(time.Now().Add(time.Hour))}
	by, err := h.gate.judge(&valid)
	if err != nil || by.until.IsZero() {
		t.Fatalf("a certificate that is valid: %v, until %v", err, by.until)
	}
	over := credentialsOf{procedure: streamProcedure, tls: state(time.Now().Add(-time.Second))}
	if _, err := h.gate.judge(&over); connect.CodeOf(err) != connect.CodeUnavailable || !errors.Is(err, servertls.ErrExpired) {
		t.Errorf("a certificate that has expired: %v", err)
	}
	if _, err := h.gate.judge(&credentialsOf{procedure: streamProcedure}); err == nil {
		t.Error("a connection without a certificate is let in")
	}
	tokens, _ := openScoped(t, "brief expires=2090-01-01T00:00:00Z\n")
	both := prepare(t, scripted{}, func(c *Config) { c.TLS, c.Tokens = files, tokens })
	for _, ends := range []time.Time{time.Now().Add(time.Hour).Truncate(time.Second), time.Date(2091, 1, 1, 0, 0, 0, 0, time.UTC)} {
		first := min(ends.Unix(), time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC).Unix())
		shown := credentialsOf{procedure: streamProcedure, authorization: "Bearer brief", tls: state(ends)}
		if by, err := both.gate.judge(&shown); err != nil || by.until.Unix() != first {
			t.Errorf("a token until 2090 with a certificate until %v: until %v, %v", ends, by.until, err)
		}
	}
	stream := h.gate.stand(valid, by)
	stream.tls = over.tls // as if the time had passed
	h.gate.judgeAgain(by.until.Add(time.Second))
	if len(stream.over) != 1 {
		t.Error("the stream of a certificate that has expired goes on")
	}
}

func certificateIn(t testing.TB, content []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(content)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
