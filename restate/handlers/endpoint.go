package handlers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/restate/orderkey"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/hosts"
	"github.com/weirhq/weir/shared/traces"
)

const (
	defaultStepRetry = time.Minute
	defaultGrace     = 10 * time.Second

	defaultEndShare = 2.0 / 3

	manifestType   = "application/vnd.restate.endpointmanifest.v4+json"
	invocationType = "application/vnd.restate.invocation.v5"
)

// Options configure the handlers. Cleanup, Watch, Rollouts, Retirement, Audit, Metrics and Log are required.
type Options struct {
	Cleanup    *cleanup.Cleanup
	Watch      *watch.Watch
	Rollouts   *rollout.Work
	Retirement *retire.Work
	Audit      audit.Store
	Approvers  access.Approvers       // reports whose approvals count; nil: all approvals count
	Saves      controlplane.JobStates // pauses of jobs; nil: only Restate has them
	Metrics    *controlplane.Metrics
	Log        *slog.Logger

	// IdentityKey is the public key (publickeyv1_…) of the Restate whose requests are accepted; all others are rejected.
	// If it is empty, every request is accepted. Leave it empty only if the port is on loopback, or on a network that no
	// other client can reach.
	IdentityKey string

	// Orders are the keys with which orders must be signed; the Client needs the same keys. If it is nil, every order is
	// rejected.
	Orders *orderkey.Keys

	// AllowedHosts are further names than loopback names by which requests over HTTP/1.x can address the handlers if there
	// is no IdentityKey. They are needed because a web page can point a name of its own at this port.
	AllowedHosts []string

	// Traces makes a span of each attempt of an invocation, within Restate's trace if it has one; nil: none.
	Traces *traces.Traces

	// StepRetryMax is how long a failing step is retried before its run fails; 0: 1 minute. Meanwhile an operator's pause
	// of the job waits.
	StepRetryMax time.Duration

	// TroubleRetry is the time between two attempts of a rollout's or a retirement's step that has already been retried
	// for StepRetryMax; 0: 10 s.
	TroubleRetry time.Duration

	// ChainGrace is how late a tick can be, beyond two intervals (or two minutes, if that is less), before Ensure
	// considers its chain dead; 0: 10 s. It covers the difference between the clocks of Restate and this process.
	ChainGrace time.Duration
}

func (o *Options) orderKeys() *orderkey.Keys { return cmp.Or(o.Orders, orderkey.Random()) }

// Endpoint serves the handlers to Restate.
//
// Serve can be called once. Shutdown waits for running invocations, so that a restart does not cost an attempt. Without
// it Restate notices the lost connection and retries.
type Endpoint struct {
	steps       *stepper
	server      *http.Server
	warm        http.Handler // the same handlers for this process's own, unsigned requests
	fingerprint string
	bounds      *bounds

	// endShare is the part of a shutdown in which invocations can complete: defaultEndShare, except in tests.
	endShare float64
}

// NewEndpoint returns the handlers. They are served by Serve.
func NewEndpoint(o Options) (*Endpoint, error) {
	return newEndpoint(o, func(steps *stepper) map[string]Job {
		return map[string]Job{
			CleanupJob: cleanupJob(o.Cleanup, steps, o.Metrics),
			WatchJob:   watchJob(o.Watch, steps),
		}
	})
}

func newEndpoint(o Options, jobs func(*stepper) map[string]Job) (*Endpoint, error) {
	e := &Endpoint{endShare: defaultEndShare,
		steps: &stepper{draining: new(atomic.Bool), retryMax: cmp.Or(o.StepRetryMax, defaultStepRetry)}}
	definitions := []restate.ServiceDefinition{
		(&cron{jobs: jobs(e.steps), steps: e.steps, saves: o.Saves, grace: cmp.Or(o.ChainGrace, defaultGrace)}).definition(),
		(&rollouts{work: o.Rollouts, steps: e.steps.within(rolloutStepRetry)}).definition(),
		(&rolloutObject{work: o.Rollouts, approvers: o.Approvers, steps: e.steps.within(rolloutStepRetry),
			retryAfter: cmp.Or(o.TroubleRetry, troubleRetry)}).definition(),
		(&retirement{
			work: o.Retirement, approvers: o.Approvers, steps: e.steps.within(rolloutStepRetry),
			retryAfter: cmp.Or(o.TroubleRetry, troubleRetry), grace: cmp.Or(o.ChainGrace, retirementGrace),
		}).definition(),
		(&orders{keys: o.orderKeys(), steps: e.steps}).definition(),
		(&auditTrail{store: o.Audit, steps: e.steps}).definition(),
	}
	handler, err := sdkHandler(definitions, bounded.Lines(onlyWarnings{o.Log.Handler()}), o.IdentityKey)
	if err != nil {
		return nil, fmt.Errorf("restate handlers: %w", err)
	}
	if e.warm, err = sdkHandler(definitions, slog.DiscardHandler, ""); err != nil {
		return nil, fmt.Errorf("restate handlers: %w", err)
	}
	if e.fingerprint, err = fingerprint(e.warm); err != nil {
		return nil, fmt.Errorf("restate handlers: %w", err)
	}
	e.bounds = newBounds(usual, o.Metrics.HandlersRefused)
	handler = e.bounds.handler(o.Traces.Work(handler, spanName))
	if o.IdentityKey == "" {
		handler = private(handler, o.AllowedHosts, e.bounds.refused)
	}
	e.server = newServer(handler, o.Log)
	return e, nil
}

// private rejects requests from web pages if requests are not signed, because a browser on this machine can reach the
// port.
func private(next http.Handler, names []string, refused func(bounded.Bound)) http.Handler {
	count := func() { refused(bounded.BoundHost) }
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		count()
		http.Error(w, "a web page of another origin sent this request", http.StatusForbidden)
	}))
	return hosts.Only(names, "--api-allowed-hosts of weir-control", count, sameOrigin.Handler(next))
}

// newServer bounds the cost of a connection. bounds set the deadlines, because an invocation's response can take long.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // health checks
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         &protocols,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ConnContext:       bounded.ConnContext,
		ErrorLog:          bounded.ErrorLog(log),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streamsMax,
			MaxReadFrameSize:              frameBytes,
			MaxReceiveBufferPerStream:     aheadBytes,
			MaxReceiveBufferPerConnection: aheadBytes,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTimeout,
			WriteByteTimeout:              writeStalled,
		},
	}
}

func sdkHandler(definitions []restate.ServiceDefinition, log slog.Handler, identityKey string) (http.Handler, error) {
	s := server.NewRestate().WithLogger(log, true)
	for _, d := range definitions {
		s.Bind(d)
	}
	if identityKey != "" {
		s.WithIdentityV1(identityKey)
	}
	return s.Handler()
}

// spanName returns an invocation's handler, or "" for discovery. Without an identity key any process that can reach
// this port can send the name.
func spanName(r *http.Request) string {
	name, _ := strings.CutPrefix(r.URL.Path, "/invoke/")
	if name == r.URL.Path {
		return ""
	}
	return name
}

// Fingerprint identifies the handlers as Restate discovers them: names, kinds, options and the shapes of requests and
// answers.
func (e *Endpoint) Fingerprint() string { return e.fingerprint }

// Serve accepts requests from l until Shutdown or Close, and closes l.
func (e *Endpoint) Serve(l net.Listener) error {
	l = bounded.Listen(l, new(bounded.Callers), usual.connections,
		func() { e.bounds.refused(bounded.BoundConnections) })
	if err := e.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve restate handlers on %s: %w", l.Addr(), err)
	}
	return nil
}

// Warm makes the SDK compile its core, which takes most of a second (and many on a busy machine), so that the first
// invocation need not wait for it. It can run while Serve runs.
//
// It returns when ctx is done, even if the core is not compiled: a process that should end need not wait for it. The
// compiler cannot be stopped, and ends by itself.
func (e *Endpoint) Warm(ctx context.Context) {
	warm := make(chan struct{})
	go func() {
		defer close(warm)
		// An invocation without a body is rejected only after the core was compiled.
		_, _ = ask(ctx, e.warm, http.MethodPost, "/invoke/"+CronService+"/Status", "Content-Type", invocationType)
	}()
	select {
	case <-warm:
	case <-ctx.Done():
	}
}

// Shutdown accepts no new invocations and lets running invocations complete. The next process may be a build with other
// steps, which could not continue an invocation of this build. After endShare of the time until ctx's deadline, no
// further step begins: each invocation finishes its present step, and the next process continues. Invocations that
// still run when ctx is done are cut off, and retried by the next process.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		handOver := time.AfterFunc(time.Duration(e.endShare*float64(time.Until(deadline))), func() {
			e.steps.draining.Store(true)
			e.bounds.suspend()
		})
		defer handOver.Stop()
	}
	if err := e.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("drain restate handlers: %w", err), e.server.Close())
	}
	return nil
}

// Close cuts off all invocations at once, as a crash would.
func (e *Endpoint) Close() error { return e.server.Close() }

// fingerprint hashes the manifest that discovery returns.
func fingerprint(handler http.Handler) (string, error) {
	status, manifest := ask(context.Background(), handler, http.MethodGet, "/discover", "Accept", manifestType)
	if status != http.StatusOK {
		return "", fmt.Errorf("discover our own handlers: status %d: %s", status, manifest)
	}
	sum := sha256.Sum256(manifest)
	return hex.EncodeToString(sum[:8]), nil
}

// ask calls a handler within the process.
func ask(ctx context.Context, handler http.Handler, method, path, header, value string) (status int, body []byte) {
	req, err := http.NewRequestWithContext(ctx, method, path, http.NoBody)
	if err != nil {
		return 0, []byte(err.Error())
	}
	req.RequestURI = path
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/2.0", 2, 0
	req.Header.Set(header, value)
	w := &answer{header: http.Header{}, status: http.StatusOK}
	handler.ServeHTTP(w, req)
	return w.status, w.Bytes()
}

// answer is a http.ResponseWriter that stores the response.
type answer struct {
	bytes.Buffer
	header http.Header
	status int
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

// onlyWarnings drops the SDK's log line for each invocation.
type onlyWarnings struct{ slog.Handler }

func (h onlyWarnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}
func (h onlyWarnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return onlyWarnings{h.Handler.WithAttrs(attrs)}
}
func (h onlyWarnings) WithGroup(name string) slog.Handler {
	return onlyWarnings{h.Handler.WithGroup(name)}
}
