package handlers

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// oldBuild serves the handlers of an earlier build: the cron without most of its handlers.
func oldBuild(t *testing.T, address string, more ...restate.ServiceDefinition) *httptest.Server {
	t.Helper()
	build := server.NewRestate().WithLogger(slog.DiscardHandler, true).Bind(restate.NewObject(CronService).
		Handler("Status", restate.NewObjectSharedHandler(func(restate.ObjectSharedContext, restate.Void) (State, error) { return State{}, nil })))
	for _, service := range more {
		build.Bind(service)
	}
	handler, err := build.Handler()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	_ = s.Listener.Close()
	s.Listener = listen(t, address)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	return s
}

// A call of a service that the new build lacks ends as that service's options say, and blocks nothing.
func TestACallOfAServiceThatIsGoneEnds(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	c.down()
	old := oldBuild(t, c.address, restate.NewService("WeirGone", restate.WithInvocationRetryPolicy(
		restate.WithInitialRetryInterval(100*time.Millisecond), restate.WithRetryIntervalFactor(1),
		restate.WithMaxRetryAttempts(20), restate.KillOnMaxAttempts())).
		Handler("Keep", restate.NewServiceHandler(func(restate.Context, string) (restate.Void, error) {
			return restate.Void{}, errors.New("not yet")
		})))
	older := NewRegistrar(c.adminClient(), "http://"+c.address, "of the older build")
	if did, err := older.Register(t.Context()); err != nil || did != RegisteredReplaced {
		t.Fatalf("the older build: %q, %v", did, err)
	}
	if status, answer := c.post("/WeirGone/Keep/send", "x"); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	failures := func() (all []string) {
		var calls struct {
			Rows []struct {
				Failure string `json:"last_failure"`
			} `json:"rows"`
		}
		c.admin(http.MethodPost, "/query", map[string]string{"query": `SELECT last_failure FROM sys_invocation
			WHERE target_service_name = 'WeirGone' AND status <> 'completed'`}, &calls)
		for _, call := range calls.Rows {
			all = append(all, call.Failure)
		}
		return all
	}
	if calls := failures(); len(calls) != 1 {
		t.Fatalf("%q are under way in the older build", calls)
	}
	old.CloseClientConnections()
	old.Close()

	c.up()
	if did, err := c.registrar().Register(t.Context()); err != nil || did != RegisteredReplaced {
		t.Fatalf("%q, %v", did, err)
	}
	if run, err := c.client.TriggerNow(t.Context(), "n", operator); err != nil || run.Error != "" {
		t.Errorf("a call of a service that stays: %+v, %v", run, err)
	}
	await.True(t, "the call has ended", func() bool { return len(failures()) == 0 })
}

// "A new build at an old address would run with the options of the old build, and without its own new handlers": it
// does, until it registers with its fingerprint.
func TestRegisterReplacesTheHandlersOfAnOlderBuild(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	ours := c.registrar()
	if did, err := ours.Register(t.Context()); err != nil || did != RegisteredSame {
		t.Fatalf("%q, %v", did, err)
	}

	c.down()
	old := oldBuild(t, c.address)
	older := NewRegistrar(NewAdmin(c.http, c.restate.AdminURL()), "http://"+c.address, "of the older build")
	if did, err := older.Register(t.Context()); err != nil || did != RegisteredReplaced {
		t.Fatalf("the older build: %q, %v", did, err)
	}
	old.CloseClientConnections()
	old.Close()

	c.up()
	start := func() error { _, err := c.client.Start(t.Context(), "n", time.Hour); return err }
	if err := start(); err == nil {
		t.Fatal("the pitfall is gone: Restate found our handlers by itself")
	}
	if did, err := ours.Register(t.Context()); err != nil || did != RegisteredByOther {
		t.Errorf("a process that had its way once: %q, %v", did, err)
	}
	restarted := c.registrar()
	for _, want := range []Registered{RegisteredReplaced, RegisteredSame} {
		if did, err := restarted.Register(t.Context()); err != nil || did != want {
			t.Fatalf("our build, restarted: %q, %v; want %q", did, err, want)
		}
	}
	if err := start(); err != nil {
		t.Error(err)
	}
	await.NoError(t, "it runs", n.reached(1))
}

// Before the handlers are registered the error names the cause.
func TestClientTellsWhatIsDown(t *testing.T) {
	t.Parallel()
	r := servers.RestateForTest(t)
	hc := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(hc.CloseIdleConnections)
	c := NewClient(hc, testKeys, r.IngressURL()+"/")
	_, err := c.Status(t.Context(), "n")
	wantUnavailable(t, err, "status of job n: unavailable: Restate does not have the handlers yet")
	registrar := NewRegistrar(NewAdmin(hc, r.AdminURL()+"/"), "http://127.0.0.1:1", "x")
	if _, err := registrar.Register(t.Context()); err == nil || !strings.Contains(err.Error(), "refused to register http://127.0.0.1:1 (can Restate reach it? see --handlers-url)") {
		t.Errorf("handlers that are not served: %v", err)
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err = c.Status(t.Context(), "n")
	wantUnavailable(t, err, "is restate-server running? see --restate-ingress")
	_, err = registrar.Register(t.Context())
	wantUnavailable(t, err, "is restate-server running? see --restate-admin")
}

func wantUnavailable(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), controlplane.ErrUnavailable.Error()) {
		t.Errorf("%v; want %q", err, says)
	}
}

// Restate gives up ticks, which are sent again, and keeps audit entries until an operator looks.
func TestRegisteredOptions(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	type service struct {
		Public bool
		Type   string `json:"ty"`
		Retry  struct {
			MaxAttempts   int    `json:"max_attempts"`
			OnMaxAttempts string `json:"on_max_attempts"`
		} `json:"retry_policy"`
	}
	var cron, audit service
	c.admin(http.MethodGet, "/services/"+CronService, nil, &cron)
	c.admin(http.MethodGet, "/services/"+AuditService, nil, &audit)
	if cron.Type != "VirtualObject" || cron.Retry.MaxAttempts != 40 || cron.Retry.OnMaxAttempts != "Kill" {
		t.Errorf("%+v", cron)
	}
	if audit.Public || audit.Retry.OnMaxAttempts != "Pause" {
		t.Errorf("%+v", audit)
	}
}

// "The public key … of the Restate whose requests are accepted; all others are rejected."
func TestRequestIdentity(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "identity.pem")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	signing, err := servers.StartRestate(t.Context(), servers.RestateOptions{
		Env: []string{"RESTATE_WORKER__INVOKER__REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE=" + keyFile},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := signing.Stop(); err != nil {
			t.Error(err)
		}
	})
	var n counter
	jobs := func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} }
	unsigned := newCluster(t, Options{}, jobs)
	unsigned.down()
	unsigned.options.IdentityKey = "publickeyv1_" + base58(public)
	unsigned.up()

	registrar := NewRegistrar(NewAdmin(unsigned.http, signing.AdminURL()), "http://"+unsigned.address, unsigned.endpoint.Fingerprint())
	if did, err := registrar.Register(t.Context()); err != nil || did != RegisteredNew {
		t.Fatalf("%q, %v", did, err)
	}
	if run, err := NewClient(unsigned.http, testKeys, signing.IngressURL()).TriggerNow(t.Context(), "n", operator); err != nil || run.Error != "" {
		t.Errorf("a signed request: %+v, %v", run, err)
	}
	if n.count() != 1 {
		t.Errorf("%d runs", n.count())
	}
	res, err := unsigned.http.Post("http://"+unsigned.address+"/invoke/WeirCron/Status", invocationType, bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("an unsigned request: %s", res.Status)
	}
	unsigned.endpoint.Warm(t.Context()) // not a request

	broken := unsigned.options
	broken.IdentityKey = "publickeyv1_!"
	if _, err := newEndpoint(broken, jobs); err == nil || !strings.Contains(err.Error(), "invalid request identity key") {
		t.Errorf("a key that is none: %v", err)
	}
}

// base58 encodes in the alphabet of request identity keys.
func base58(b []byte) string {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var text []byte
	n, base, digit := new(big.Int).SetBytes(b), big.NewInt(58), new(big.Int)
	for n.Sign() > 0 {
		n.DivMod(n, base, digit)
		text = append([]byte{alphabet[digit.Int64()]}, text...)
	}
	for _, zero := range b {
		if zero != 0 {
			break
		}
		text = append([]byte{alphabet[0]}, text...)
	}
	return string(text)
}

// The fingerprint is the same in every process of a build, and differs for other handlers.
func TestFingerprint(t *testing.T) {
	make := func(o Options) *Endpoint {
		o.Log, o.Metrics = slog.New(slog.DiscardHandler), controlplane.NewMetrics()
		e, err := NewEndpoint(o)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first, second := make(Options{}), make(Options{StepRetryMax: time.Hour})
	if first.Fingerprint() != second.Fingerprint() || len(first.Fingerprint()) != 16 {
		t.Errorf("%q, %q", first.Fingerprint(), second.Fingerprint())
	}
	other, err := sdkHandler([]restate.ServiceDefinition{(&cron{}).definition()}, slog.DiscardHandler, "")
	if err != nil {
		t.Fatal(err)
	}
	if f, err := fingerprint(other); err != nil || f == first.Fingerprint() {
		t.Errorf("other handlers: %q, %v", f, err)
	}
}

// Health checks use HTTP/1.1.
func TestHealth(t *testing.T) {
	e, err := NewEndpoint(Options{Log: slog.New(slog.DiscardHandler), Metrics: controlplane.NewMetrics()})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "")
	served := make(chan error, 1)
	go func() { served <- e.Serve(l) }()
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := hc.Get("http://" + l.Addr().String() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ProtoMajor != 1 || string(body) != "ok" {
		t.Errorf("%s %s %q", res.Proto, res.Status, body)
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// "A process that should end need not wait for it": Warm returns although the compiler ignores the context.
func TestWarmEndsWithItsContext(t *testing.T) {
	compiling, compiled := make(chan struct{}), make(chan struct{})
	e := &Endpoint{warm: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(compiling)
		<-compiled
	})}
	defer close(compiled)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Warm(ctx)
	}()
	<-compiling
	select {
	case <-ended:
		t.Error("it does not wait at all")
	default:
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it waits for the compiler")
	}
}

// Packages that must not be imported, each with the reason.
func TestDependencyRules(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for forbidden, why := range map[string]string{
			"github.com/weirhq/weir/dataplane":          "the planes do not know each other",
			"github.com/weirhq/weir/controlplane/api":   "the API knows interfaces, which we implement; mains wire them",
			"github.com/weirhq/weir/controlplane/store": "steps know MySQL, their order does not",
			"github.com/go-sql-driver/mysql":            "steps know MySQL, their order does not",
		} {
			if dep == forbidden || strings.HasPrefix(dep, forbidden+"/") {
				t.Errorf("depends on %s: %s", dep, why)
			}
		}
	}
}
