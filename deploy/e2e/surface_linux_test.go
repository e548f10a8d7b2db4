package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1"
	_ "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirhq/weir/deploy/local/stack"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/servers"
)

// Secrets that must not be found anywhere.
const (
	adminSecret    = "0f3e-the-secret-of-the-first-admin"
	nodeSecret     = "51c7-the-secret-of-a-caller-of-nodes"
	databaseSecret = "8a9d-the-secret-of-mysql-and-redis"

	reasonTold = "told together with a token"
)

// SECURITY.md lists the answers of every listener to callers without credentials. No listener answers more, on any of
// the routes and methods that exist. The console's headers, its cookie and the limit on signing in are as documented,
// and secrets stay where they were put.
func TestSurface(t *testing.T) { servers.TurnSQL(t, testSurface) }

func testSurface(t *testing.T) {
	o := protected(t)
	s := start(t, func(options *stack.Options) {
		options.Regions, options.NodesPerRegion = []string{"eu"}, 1
		options.ControlArgs, options.NodeArgs, options.Password = o.ControlArgs, o.NodeArgs, databaseSecret
	})
	page := surfacePage(t)
	node := s.Nodes[0]

	t.Run("strangers", func(t *testing.T) {
		routes, methods := routesOfAll(t), methodsOfAll()
		for listener, address := range map[string]string{
			"weir-node `listen`": node.Addrs()[0], "weir-node `grpc-listen`": node.Addrs()[2], "weir-node `admin-listen`": node.Addrs()[1],
			"weir-control `api-listen`": s.Control.Addrs()[0],
		} {
			var answered []string
			if !strings.Contains(listener, "grpc") {
				answered = getAndPost(t, "http://"+address, routes)
			}
			answered = append(answered, callAll(t, "http://"+address, methods)...)
			holdAgainst(t, listener, page[listener], answered)
		}
		answered := answersWithoutCertificate(t, peersListen(t, node))
		holdAgainst(t, "weir-node `relay-peers-listen`", page["weir-node `relay-peers-listen`"], answered)
	})
	t.Run("sockets", func(t *testing.T) {
		want := map[int]int{node.PID(): 4, s.Control.PID(): 2, s.SQL.PID(): 1, s.Redis["eu"].PID(): 1, s.Restate.PID(): 3}
		for pid, sockets := range want {
			found := listening(t, pid)
			if len(found) != sockets {
				t.Errorf("process %d listens on %v, want %d sockets", pid, found, sockets)
			}
			for _, address := range found {
				if !address.Addr().IsLoopback() {
					t.Errorf("process %d listens on %s", pid, address)
				}
			}
		}
	})
	t.Run("console", func(t *testing.T) { theConsole(t, s.API()) })
	t.Run("secrets", func(t *testing.T) { secretsStay(t, s, o) })
}

// protected returns the options of a stack that requires tokens wherever it can.
func protected(t *testing.T) (o stack.Options) {
	t.Helper()
	dir := t.TempDir()
	sum := sha256.Sum256([]byte(nodeSecret))
	for name, text := range map[string]string{
		"admin-token": adminSecret,
		"tokens":      hex.EncodeToString(sum[:]) + "  a caller\n",
		"edge.yaml":   "domain: edge\ndescriptors:\n  - key: path\n    rate_limit: { unit: second, requests_per_unit: 10 }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.ControlArgs = []string{"--api-auth=token", "--api-admin-token-file=" + filepath.Join(dir, "admin-token"), "--api-trusted-proxies=127.0.0.1"}
	o.NodeArgs = []string{"--tokens-file=" + filepath.Join(dir, "tokens"), "--rls-rules=" + filepath.Join(dir, "edge.yaml"), "--v2-overrides"}
	o.NodeArgs = append(o.NodeArgs, peersArgs(t)...)
	return o
}

// surfacePage reads the table of SECURITY.md: the paths that a listener answers without credentials.
func surfacePage(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	page := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (weir-\\w+ `[\\w-]+`) \\|[^|]*\\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		page[row[1]] = []string{}
		for _, path := range regexp.MustCompile("`(/[^`]*)`").FindAllStringSubmatch(row[2], -1) {
			page[row[1]] = append(page[row[1]], path[1])
		}
	}
	if len(page) != 6 {
		t.Fatalf("SECURITY.md has rows for %v", page)
	}
	return page
}

// holdAgainst compares the answered paths with the documented paths. A documented path that ends in / includes all
// paths below it.
func holdAgainst(t *testing.T, listener string, documented, answered []string) {
	t.Helper()
	open := func(path string) int {
		return slices.IndexFunc(documented, func(d string) bool {
			return d == path || len(d) > 1 && strings.HasSuffix(d, "/") && strings.HasPrefix(path, d)
		})
	}
	seen := map[string]bool{}
	for _, path := range answered {
		i := open(path)
		if i < 0 {
			t.Errorf("%s answers %s without credentials, and SECURITY.md does not say so", listener, path)
			continue
		}
		seen[documented[i]] = true
	}
	for _, path := range documented {
		if !seen[path] {
			t.Errorf("SECURITY.md says that %s answers %s without credentials, and it does not", listener, path)
		}
	}
}

// routesOfAll returns the HTTP routes of all programs, read from the code that registers them, so that new routes are
// tried too.
func routesOfAll(t *testing.T) (routes []string) {
	t.Helper()
	registered := regexp.MustCompile(`(?:Handle|HandleFunc|open|look|change)\("(?:GET |POST )?(/[^"]*)"|"(/(?:debug|v2)/[^"]*)"|Prefix \+ "(\w+)"`)
	for _, place := range []string{"../../dataplane/node/*.go", "../../dataplane/node/routes/*.go", "../../controlplane/api/*.go", "../../controlplane/console/*.go", "../../restate/handlers/*.go"} {
		sources, err := filepath.Glob(place)
		if err != nil {
			t.Fatal(err)
		}
		for _, source := range sources {
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(source, "_test.go") {
				continue
			}
			for _, m := range registered.FindAllStringSubmatch(string(text), -1) {
				path := m[1] + m[2]
				if m[3] != "" {
					path = "/v2/ratelimit." + m[3]
				}
				routes = append(routes, regexp.MustCompile(`\{\w+\}`).ReplaceAllString(strings.ReplaceAll(path, "{$}", ""), "x"))
			}
		}
	}
	err := fs.WalkDir(os.DirFS("../../controlplane/console"), "static", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			routes = append(routes, "/console/"+path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	routes = append(append(routes, methodsOfAll()...), "/", "/discover", "/health", "/debug/vars", "/debug/pprof/heap", "/debug/pprof/goroutine", "/invoke/WeirCron/init")
	slices.Sort(routes)
	if routes = slices.Compact(routes); len(routes) < 60 || !slices.Contains(routes, "/weir.v1.RateLimitService/Limit") || !slices.Contains(routes, "/v2/ratelimit.setOverride") || !slices.Contains(routes, "/debug/pprof/profile") || !slices.Contains(routes, "/console/limits/override") {
		t.Fatalf("found only %d routes: %v", len(routes), routes)
	}
	return routes
}

// methodsOfAll returns the methods of every service in this binary from their descriptors: our services, health,
// reflection and Envoy's.
func methodsOfAll() (methods []string) {
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				methods = append(methods, "/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name()))
			}
		}
		return true
	})
	return methods
}

// stranger follows no redirects and has no credentials.
var stranger = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       30 * time.Second,
}

// getAndPost calls each route in both ways, and returns the routes that answered.
func getAndPost(t *testing.T, base string, routes []string) (answered []string) {
	t.Helper()
	for _, route := range routes {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			status, header, _ := ask(t, stranger, method, base+route, "{}", http.Header{"Content-Type": {"application/json"}, "Origin": {base}})
			toSignIn := status/100 == 3 && strings.HasPrefix(header.Get("Location"), "/console/")
			refused := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge}
			if !toSignIn && !slices.Contains(refused, status) {
				answered = append(answered, route)
			}
		}
	}
	return answered
}

func ask(t *testing.T, client *http.Client, method, target, body string, header http.Header) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return res.StatusCode, res.Header, string(text)
}

// callAll makes a gRPC call to each method, and returns the methods that answered.
func callAll(t *testing.T, base string, methods []string) (answered []string) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	for _, method := range methods {
		client := connect.NewClient[emptypb.Empty, emptypb.Empty](&http.Client{Transport: transport, Timeout: 30 * time.Second}, base+method, connect.WithGRPC())
		call := client.CallBidiStream(t.Context())
		sent := call.Send(&emptypb.Empty{})
		_ = call.CloseRequest()
		_, err := call.Receive()
		_ = call.CloseResponse()
		switch connect.CodeOf(err) {
		case connect.CodeUnauthenticated, connect.CodeUnimplemented, connect.CodePermissionDenied:
		default:
			if sent != nil && !errors.Is(sent, io.EOF) {
				t.Fatalf("%s%s: %v", base, method, sent)
			}
			answered = append(answered, method)
		}
	}
	return answered
}

// theConsole checks headers, the cookie, and the limit on signing in.
func theConsole(t *testing.T, api string) {
	for _, path := range []string{"/console/", "/console/sign-in", "/console/static/console.js", "/console/nowhere", "/console/events", "/console/limits?workspace=acme"} {
		_, header, _ := ask(t, stranger, http.MethodGet, api+path, "", http.Header{})
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Permissions-Policy": "camera=()",
		} {
			if !strings.HasPrefix(header.Get(name), want) {
				t.Errorf("%s: %s is %q, want %q", path, name, header.Get(name), want)
			}
		}
	}
	form := func(token string) string {
		return url.Values{"token": {token}, "next": {"//elsewhere.example/"}}.Encode()
	}
	for name, header := range map[string]http.Header{"weir_session": {}, "__Host-weir": {"X-Forwarded-Proto": {"https"}}} {
		header.Set("Content-Type", "application/x-www-form-urlencoded")
		header.Set("Origin", api)
		status, got, _ := ask(t, stranger, http.MethodPost, api+"/console/sign-in", form(adminSecret), header)
		cookie := got.Get("Set-Cookie")
		for _, flag := range []string{name + "=", "; Path=/;", "; HttpOnly", "; SameSite=Strict"} {
			if !strings.Contains(cookie+";", flag) {
				t.Errorf("the cookie is %q, want %s in it", cookie, flag)
			}
		}
		if secure := strings.Contains(cookie, "; Secure"); secure != (name == "__Host-weir") || strings.Contains(cookie, "Domain") || strings.Contains(cookie, adminSecret) {
			t.Errorf("the cookie is %q", cookie)
		}
		if status != http.StatusSeeOther || got.Get("Location") != "/console/" {
			t.Errorf("signed in, and sent to %d %s", status, got.Get("Location"))
		}
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {api}}
	for range 40 { // more than the limit of a window, at any point of the window
		switch status, got, body := ask(t, stranger, http.MethodPost, api+"/console/sign-in", form("guess"), header); status {
		case http.StatusUnauthorized:
			if strings.Contains(body, "guess") || got.Get("Set-Cookie") != "" {
				t.Errorf("a wrong token is answered with %q and %s", got.Get("Set-Cookie"), body)
			}
		case http.StatusTooManyRequests:
			if seconds, err := strconv.Atoi(got.Get("Retry-After")); err != nil || seconds < 1 {
				t.Errorf("Retry-After is %q", got.Get("Retry-After"))
			}
			return
		default:
			t.Fatalf("a wrong token is answered with %d", status)
		}
	}
	t.Error("40 guesses, and no limit")
}

// bearer is a client that sends a token.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return stranger.Transport.RoundTrip(r)
}

// secretsStay uses every secret for its purpose. Then it looks for the secrets in logs, metrics, command lines and
// environments, printed configurations, Restate's journals, and all tables.
func secretsStay(t *testing.T, s *stack.Stack, o stack.Options) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	admin := &http.Client{Transport: bearer{adminSecret}, Jar: jar}
	made, err := controlv1connect.NewTokenServiceClient(admin, s.API()).CreateToken(t.Context(), connect.NewRequest(&controlv1.CreateTokenRequest{Reason: "test", Name: "ci", Role: "operator"}))
	if err != nil {
		t.Fatal(err)
	}
	operator := &http.Client{Transport: bearer{made.Msg.GetSecret()}}
	if _, err := controlv1connect.NewControlServiceClient(operator, s.API()).CleanupRun(t.Context(), connect.NewRequest(&controlv1.CleanupRunRequest{Reason: reasonTold})); err != nil {
		t.Fatal(err)
	}
	if _, err := controlv1connect.NewHealthServiceClient(operator, s.API()).Diagnose(t.Context(), connect.NewRequest(&controlv1.DiagnoseRequest{})); err != nil {
		t.Fatal(err)
	}
	caller := &http.Client{Transport: bearer{nodeSecret}}
	decision := `{"workspace":"acme","namespace":"api","identifier":"user_42","limit":10,"duration_ms":60000}`
	if status, _, body := ask(t, caller, http.MethodPost, s.Nodes[0].URL()+"/weir.v1.RateLimitService/Limit", decision, http.Header{"Content-Type": {"application/json"}}); status != http.StatusOK {
		t.Fatalf("a caller with a token: %d %s", status, body)
	}

	secrets := []string{adminSecret, nodeSecret, databaseSecret, made.Msg.GetSecret()}
	look := func(where, text string) {
		for _, secret := range secrets {
			if strings.Contains(text, secret) || strings.Contains(text, hex.EncodeToString([]byte(secret))) {
				t.Errorf("a secret (%.4s…) is in %s", secret, where)
			}
		}
	}
	for where, metrics := range map[string]string{"the node's metrics": s.Nodes[0].AdminURL(), "the control plane's metrics": s.API()} {
		status, _, text := ask(t, caller, http.MethodGet, metrics+"/metrics", "", http.Header{})
		if status != http.StatusOK || !strings.Contains(text, "weir_") {
			t.Errorf("%s: %d", where, status)
		}
		look(where, text)
		if where == "the control plane's metrics" && regexp.MustCompile(`weir_control_auth_failures_total\{reason="unknown_token"\} 0`).MatchString(text) {
			t.Error("guesses at the sign-in are not counted")
		}
	}
	for what, pid := range map[string]int{"weir-node": s.Nodes[0].PID(), "weir-control": s.Control.PID(), "Restate": s.Restate.PID(), "SQL": s.SQL.PID()} {
		started, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		look("the command line of "+what, string(started))
	}
	printedConfigurations(t, s, o, look)
	journals(t, s, look)
	tables(t, s, look)
	logFiles(t, s, look)
}
