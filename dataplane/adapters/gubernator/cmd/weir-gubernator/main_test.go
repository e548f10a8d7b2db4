package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/gubernator-io/gubernator/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane/adapters/gubernator"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/testcert"
)

// TestMain lets the test binary be weir-gubernator itself, so that the tests below start the real main in a real
// process. It frees all of them from the environment that they run in.
func TestMain(m *testing.M) {
	if os.Getenv("BE_WEIR_GUBERNATOR") != "" {
		main()
		return
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "WEIR_") || strings.HasPrefix(name, "GUBER_") {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// process is a running weir-gubernator.
type process struct {
	*exec.Cmd
	log   *await.Log
	ended chan struct{}

	grpc, http, admin string // addresses
}

// command returns weir-gubernator with a file of settings, and an otherwise empty environment.
func command(t *testing.T, settings ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gubernator.conf")
	text := "# settings of a test\n\n" + strings.Join(settings, "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-config", path)
	c.Env = []string{"BE_WEIR_GUBERNATOR=1", "PATH=" + os.Getenv("PATH")}
	return c
}

// begin starts weir-gubernator on free ports and waits until it serves.
func begin(t *testing.T, settings ...string) *process {
	t.Helper()
	settings = append([]string{"GUBER_GRPC_ADDRESS=127.0.0.1:0", "GUBER_HTTP_ADDRESS=127.0.0.1:0"}, settings...)
	p := &process{Cmd: command(t, settings...), log: new(await.Log), ended: make(chan struct{})}
	p.Stderr = p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.ended) }()
	t.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
	await.True(t, "it serves", func() bool {
		select {
		case <-p.ended:
			t.Fatalf("it ended: %v\n%s", p.ProcessState, p.log)
		default:
		}
		p.grpc, p.http = p.logged("serving", "grpc_listen"), p.logged("serving", "listen")
		p.admin = p.logged("serving", "admin_listen")
		return p.grpc != ""
	})
	return p
}

// logged returns a field of the first log line with a message, or "".
func (p *process) logged(message, field string) string {
	for line := range strings.Lines(p.log.String()) {
		var event map[string]any
		if json.Unmarshal([]byte(line), &event) == nil && event["msg"] == message {
			return fmt.Sprint(event[field])
		}
	}
	return ""
}

// stop ends it as an operator does, and wants a clean end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(await.Patience):
		t.Fatalf("still running\n%s", p.log)
	}
	if code := p.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
}

// client returns gubernator's own client.
func client(t *testing.T, address string, config *tls.Config) v1.V1Client {
	t.Helper()
	c, err := v1.DialV1Server(address, config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func hits(key string, n int64) *v1.GetRateLimitsReq {
	return &v1.GetRateLimitsReq{Requests: []*v1.RateLimitReq{{Name: "requests", UniqueKey: key, Hits: n, Limit: 10,
		Duration: 24 * v1.Minute * 60}}}
}

// ask sends a request by gRPC.
func ask(t *testing.T, c v1.V1Client, key string, n int64) *v1.RateLimitResp {
	t.Helper()
	out, err := c.GetRateLimits(t.Context(), hits(key, n))
	if err != nil || len(out.GetResponses()) != 1 || out.GetResponses()[0].GetError() != "" {
		t.Fatalf("%v, %v", out, err)
	}
	return out.GetResponses()[0]
}

// call sends a request by HTTP: a GET if body is empty.
func call(t *testing.T, config *tls.Config, url, body string) (int, string) {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(content)
}

// gubernator's Go client, HTTP callers and probes work with a settings file of gubernator. Settings without an effect
// are named once.
func TestCallersGoOn(t *testing.T) {
	p := begin(t, "GUBER_CACHE_SIZE=1000", "GUBER_DATA_CENTER=eu", "GUBER_INSTANCE_ID=one", "GUBER_LOG_LEVEL=warning",
		"GUBER_GRPC_MAX_CONN_AGE_SEC=3600", "GUBER_PEER_DISCOVERY_TYPE=etcd", "GUBER_ETCD_PASSWORD=hunter2",
		"GUBER_BATCH_WAIT=500us", "GUBER_GLOBAL_TIMEOUT=1s", "GUBER_WORKER_COUNT=4", "GUBER_DEBUG=true",
		"WEIR_WORKSPACE=acme")
	c := client(t, p.grpc, nil)
	if r := ask(t, c, "user_42", 4); r.Status != v1.Status_UNDER_LIMIT || r.Remaining != 6 {
		t.Errorf("%v", r)
	}
	code, answer := call(t, nil, "http://"+p.http+"/v1/GetRateLimits",
		`{"requests":[{"name":"requests","unique_key":"user_42","hits":"7","limit":"10","duration":"86400000"}]}`)
	if code != 200 || !strings.Contains(answer, "OVER_LIMIT") {
		t.Errorf("%d %s", code, answer)
	}
	code, answer = call(t, nil, "http://"+p.http+"/weir.v1.RateLimitService/Peek",
		`{"workspace":"acme","namespace":"requests","identifier":"user_42","limit":10,"duration_ms":86400000}`)
	if code != 200 || !strings.Contains(answer, `"remaining":"5"`) {
		t.Errorf("%d %s", code, answer)
	}
	if h, err := c.HealthCheck(t.Context(), new(v1.HealthCheckReq)); err != nil || h.Status != v1.Healthy {
		t.Errorf("%v, %v", h, err)
	}
	if _, err := c.LiveCheck(t.Context(), new(v1.LiveCheckReq)); err != nil {
		t.Error(err)
	}
	for path, says := range map[string]string{
		"/v1/HealthCheck": `"healthy"`, "/v1/LiveCheck": "{",
		"/metrics": `weir_rpc_requests_total{code="ok",method="gubernator.GetRateLimits"} 2`,
	} {
		if code, answer := call(t, nil, "http://"+p.http+path, ""); code != 200 || !strings.Contains(answer, says) {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	_, metrics := call(t, nil, "http://"+p.admin+"/metrics", "")
	for _, says := range []string{`node_id="one",region="eu"`, "weir_entries_max 1000"} {
		if !strings.Contains(metrics, says) {
			t.Errorf("want %s:\n%s", says, metrics)
		}
	}
	const says = "these settings have no effect here: nodes share counts through Redis and have no peers"
	ignored := "[GUBER_BATCH_WAIT GUBER_ETCD_PASSWORD GUBER_GLOBAL_TIMEOUT GUBER_PEER_DISCOVERY_TYPE GUBER_WORKER_COUNT]"
	if got := p.logged(says, "settings"); got != ignored || strings.Count(p.log.String(), "no effect") != 1 {
		t.Errorf("no effect: %s", got)
	}
	if strings.Contains(p.log.String(), "hunter2") {
		t.Error("the log holds a password")
	}
	p.stop(t)
}

// Two processes with the same Redis share a limit.
func TestProcessesShareALimit(t *testing.T) {
	redis := servers.RedisForTest(t)
	url := "WEIR_REDIS_URL=redis://" + redis.Addr()
	one, two := begin(t, url), begin(t, url)
	first, second := client(t, one.grpc, nil), client(t, two.grpc, nil)
	if r := ask(t, first, "shared", 8); r.Status != v1.Status_UNDER_LIMIT {
		t.Fatalf("%v", r)
	}
	await.True(t, "the second hears of the first's hits", func() bool {
		return ask(t, second, "shared", 0).Remaining == 2
	})
	if r := ask(t, second, "shared", 3); r.Status != v1.Status_OVER_LIMIT {
		t.Errorf("%v", r)
	}
	if r := ask(t, second, "shared", 2); r.Status != v1.Status_UNDER_LIMIT || r.Remaining != 0 {
		t.Errorf("%v", r)
	}
	one.stop(t)
	two.stop(t)
}

// A faulty setting ends the start with exit code 2, and is named.
func TestFaultySettings(t *testing.T) {
	authority := testcert.New(t)
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	authority.Issue(t).Write(t, certificate, key)
	tls := []string{"GUBER_TLS_CERT=" + certificate, "GUBER_TLS_KEY=" + key}
	with := func(more ...string) []string { return slices.Concat(tls, more) }
	for says, settings := range map[string][]string{
		"malformed key=value":                     {"GUBER_HTTP_ADDRESS"},
		`GUBER_HTTP_ADDRESS is "1050": want`:      {"GUBER_HTTP_ADDRESS=1050"},
		`GUBER_GRPC_ADDRESS is "1051": want`:      {"GUBER_GRPC_ADDRESS=1051"},
		"GUBER_CACHE_SIZE is -1 (1 to":            {"GUBER_CACHE_SIZE=-1"},
		"'GUBER_CACHE_SIZE' as an integer":        {"GUBER_CACHE_SIZE=many"},
		"GUBER_GRPC_MAX_CONN_AGE_SEC is -1 (0 to": {"GUBER_GRPC_MAX_CONN_AGE_SEC=-1"},
		"GUBER_LOG_LEVEL: invalid log level":      {"GUBER_LOG_LEVEL=loud"},
		"GUBER_DATA_CENTER is 49 bytes long":      {"GUBER_DATA_CENTER=" + strings.Repeat("x", 49)},
		"GUBER_INSTANCE_ID is 65 bytes long":      {"GUBER_INSTANCE_ID=" + strings.Repeat("x", 65)},
		"GUBER_PEER_DISCOVERY_TYPE is invalid":    {"GUBER_PEER_DISCOVERY_TYPE=friends"},
		"GUBER_TLS_AUTO is set":                   {"GUBER_TLS_AUTO=true"},
		"GUBER_TLS_CERT and GUBER_TLS_KEY: set":   {"GUBER_TLS_CERT=" + certificate},
		"no GUBER_TLS_ variable at all":           {"GUBER_TLS_CA="},
		"no such file":                            {"GUBER_TLS_CERT=/no/such", "GUBER_TLS_KEY=/no/such"},
		`GUBER_TLS_CLIENT_AUTH is "verify-cert"`:  with("GUBER_TLS_CLIENT_AUTH=verify-cert"),
		"GUBER_TLS_CLIENT_AUTH needs GUBER_TLS_C": with("GUBER_TLS_CLIENT_AUTH=require-and-verify"),
		"holds no certificate of an authority":    with("GUBER_TLS_CLIENT_AUTH=require-and-verify", "GUBER_TLS_CA="+key),
		"'GUBER_TLS_MIN_VERSION' as an min tls":   with("GUBER_TLS_MIN_VERSION=4"),
		"WEIR_WORKSPACE is 192 bytes long":        {"WEIR_WORKSPACE=" + strings.Repeat("x", 192)},
		"redis-url cannot be read":                {"WEIR_REDIS_URL=hunter2"},
		"admin-listen is \":1\": other machines":  {"WEIR_ADMIN_LISTEN=:1"},
	} {
		start := command(t, settings...)
		output, _ := start.CombinedOutput()
		named := slices.ContainsFunc(strings.Split(string(output), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "weir-gubernator: ") && strings.Contains(line, says)
		})
		code := start.ProcessState.ExitCode()
		if code != 2 || !named || strings.Contains(string(output), "hunter2") {
			t.Errorf("exit code %d, want 2 and %q:\n%s", code, says, output)
		}
	}
}

// Flags are gubernator's; others are faults.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-version"}, 0, "weir-gubernator "},
		{[]string{"-help"}, 0, "-config"},
		{[]string{"-other"}, 2, "-other"},
		{[]string{"start"}, 2, `unexpected argument "start"`},
		{[]string{"-config", "/no/such/file"}, 2, "-config: open /no/such/file"},
	} {
		var output bytes.Buffer
		if code := run(t.Context(), c.args, &output, &output); code != c.code || !strings.Contains(output.String(), c.says) {
			t.Errorf("%v: exit code %d\n%s", c.args, code, output.String())
		}
	}
}

// Callers without a certificate get nothing but health at the address for it; SIGHUP ends nothing.
func TestMutualTLS(t *testing.T) {
	authority, dir := testcert.New(t), t.TempDir()
	certificate, key, ca := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"), filepath.Join(dir, "ca.pem")
	authority.Issue(t).Write(t, certificate, key)
	if err := os.WriteFile(ca, authority.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, "GUBER_TLS_CERT="+certificate, "GUBER_TLS_KEY="+key, "GUBER_TLS_CA="+ca,
		"GUBER_TLS_CLIENT_AUTH=require-and-verify", "GUBER_STATUS_HTTP_ADDRESS=127.0.0.1:0")
	health := "https://" + p.logged("serving health alone", "probe_listen")
	pair := authority.Issue(t)
	own, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	nobody := &tls.Config{RootCAs: authority.Pool()}
	known := &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{own}}
	old := &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{own}, MaxVersion: tls.VersionTLS12}
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		config *tls.Config
		served bool
	}{{"known", known, true}, {"nobody", nobody, false}, {"older than TLS 1.3", old, false}} {
		_, err := client(t, p.grpc, c.config).GetRateLimits(t.Context(), hits("a", 1))
		if (err == nil) != c.served {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, path := range []string{"/v1/HealthCheck", "/metrics"} {
			if code, answer := call(t, c.config, "https://"+p.http+path, ""); (code == 200) != c.served {
				t.Errorf("%s: %d %s", c.name, code, answer)
			}
		}
	}
	if code, answer := call(t, nobody, health+"/v1/HealthCheck", ""); code != 200 || !strings.Contains(answer, "healthy") {
		t.Errorf("%d %s", code, answer)
	}
	if code, answer := call(t, nobody, health+"/v1/GetRateLimits", "{}"); code != 404 {
		t.Errorf("%d %s", code, answer)
	}
	if log := p.log.String(); strings.Contains(log, "no effect") {
		t.Error(log)
	}
	p.stop(t)
}

// Large and slow calls are refused, and others go on.
func TestCallsAreBounded(t *testing.T) {
	p := begin(t)
	c := client(t, p.grpc, nil)
	slow := make(chan string, 2)
	for _, begun := range []string{"POST /v1/GetRateLimits HTTP/1.1\r\nHost: localhost\r\n",
		"POST /v1/GetRateLimits HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"} {
		go func() { slow <- unfinished(t.Context(), p.http, begun) }()
	}
	many := &v1.GetRateLimitsReq{Requests: make([]*v1.RateLimitReq, gubernator.ItemsMax+1)}
	for says, bad := range map[string]struct {
		in   *v1.GetRateLimitsReq
		code codes.Code
	}{
		"1001 items":  {many, codes.OutOfRange},
		"larger than": {hits(strings.Repeat("x", 1<<20), 1), codes.ResourceExhausted},
	} {
		_, err := c.GetRateLimits(t.Context(), bad.in)
		if status.Code(err) != bad.code || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
	if _, err := c.HealthCheck(t.Context(), new(v1.HealthCheckReq)); err != nil {
		t.Error(err)
	}
	for says, body := range map[string]string{
		"1001 items":      `{"requests":[` + strings.Repeat("{},", gubernator.ItemsMax) + `{}]}`,
		"2003 objects":    `{"requests":[` + strings.Repeat("{},", 2*gubernator.ItemsMax+1) + `{}]}`,
		"body is longer ": strings.Repeat(" ", gubernator.BodyMax+1),
	} {
		code, answer := call(t, nil, "http://"+p.http+"/v1/GetRateLimits", body)
		var said struct{ Message string }
		if err := json.Unmarshal([]byte(answer), &said); err != nil || code != 400 || !strings.Contains(said.Message, says) {
			t.Errorf("want %q: %d %s", says, code, answer)
		}
	}
	for range cap(slow) {
		if answer := <-slow; strings.Contains(answer, "200 OK") {
			t.Error(answer)
		}
	}
	if r := ask(t, c, "a", 1); r.Remaining != 9 {
		t.Errorf("%v", r)
	}
	p.stop(t)
}

// unfinished begins a call and returns all bytes that it receives until the server ends the connection.
func unfinished(ctx context.Context, address, begun string) string {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "200 OK " + err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(await.Patience))
	_, _ = io.WriteString(conn, begun)
	answer, err := io.ReadAll(conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return "200 OK never"
	}
	return string(answer)
}
