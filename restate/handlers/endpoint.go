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

// Options are what the handlers work with. Cleanup, Watch, Rollouts, Retirement, Audit,
// Metrics and Log are required.
type Options struct {
	Cleanup    *cleanup.Cleanup
	Watch      *watch.Watch
	Rollouts   *rollout.Work
	Retirement *retire.Work
	Audit      audit.Store
	Approvers  access.Approvers       // whose approvals count; nil: all approvals count
	Saves      controlplane.JobStates // pauses of jobs; nil: only Restate has them
	Metrics    *controlplane.Metrics
	Log        *slog.Logger

	// IdentityKey is the public key (publickeyv1_…) of the Restate whose requests are
	// taken; all others are refused. Empty: every request is taken, which is only
	// right on loopback or a network that no one else reaches.
	IdentityKey string

	// Orders are the keys with which orders must be signed; the Client needs the same keys. If it
	// is nil, every order is refused.
	Orders *orderkey.Keys

	// AllowedHosts are names, beside loopback ones, by which requests over HTTP/1.x may address the
	// handlers where there is no IdentityKey: a web page can point a name of its own at this port.
	AllowedHosts []string

	// Traces makes a span of each attempt of an invocation, within Restate's trace where it
	// has one; nil: none.
	Traces *traces.Traces

	// StepRetryMax is how long a failing step is tried again before its run fails;
	// 0: 1 minute. Meanwhile an operator's pause of the job waits.
	StepRetryMax time.Duration

	// TroubleRetry is the time between two attempts of a rollout's or a retirement's step,
	// once one has been tried for StepRetryMax; 0: 10 s.
	TroubleRetry time.Duration

	// ChainGrace is how late a tick may be, beyond two intervals (or two minutes, if
	// those are less), before Ensure takes its chain for dead; 0: 10 s. It covers the
	// difference between the clocks of Restate and this process.
	ChainGrace time.Duration
}

func (o *Options) orderKeys() *orderkey.Keys { return cmp.Or(o.Orders, orderkey.Random()) }

// Endpoint serves the handlers to Restate.
//
// Serve may be called once. Shutdown waits for what runs, so that a restart does not
// cost an attempt; without it Restate notices the lost connection and tries again.
type Endpoint struct {
	steps       *stepper
	server      *http.Server
	warm        http.Handler // the same handlers for requests of our own, unsigned
	fingerprint string
	bounds      *bounds

	// endShare is the part of a shutdown in which invocations may come to their end: defaultEndShare, except in tests.
	endShare float64
}

// NewEndpoint returns the handlers, not yet served.
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

// private keeps web pages out where requests are not signed: a browser on this machine reaches the port.
func private(next http.Handler, names []string, refused func(bounded.Bound)) http.Handler {
	count := func() { refused(bounded.BoundHost) }
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		count()
		http.Error(w, "a web page of another origin sent this request", http.StatusForbidden)
	}))
	return hosts.Only(names, "--api-allowed-hosts of weir-control", count, sameOrigin.Handler(next))
}

// newServer bounds what a connection costs. bounds have the deadlines: an invocation's answer may take long.
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

// spanName is an invocation's handler, whichever process sends it: without an identity key, only what
// reaches this port. Discovery has none.
func spanName(r *http.Request) string {
	name, _ := strings.CutPrefix(r.URL.Path, "/invoke/")
	if name == r.URL.Path {
		return ""
	}
	return name
}

// Fingerprint identifies what Restate is told about the handlers: names, kinds,
// options and the shapes of requests and answers.
func (e *Endpoint) Fingerprint() string { return e.fingerprint }

// Serve takes requests from l until Shutdown or Close, and closes it.
func (e *Endpoint) Serve(l net.Listener) error {
	l = bounded.Listen(l, new(bounded.Callers), usual.connections,
		func() { e.bounds.refused(bounded.BoundConnections) })
	if err := e.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve restate handlers on %s: %w", l.Addr(), err)
	}
	return nil
}

// Warm makes the SDK compile its core, which takes most of a second (and many on a busy
// machine), so that the first invocation does not wait for it. It may run beside Serve.
//
// It returns when ctx is done, even if the core is not there yet: a process that is to end
// does not wait for what it will not use. The compiler cannot be stopped, and ends by itself.
func (e *Endpoint) Warm(ctx context.Context) {
	warm := make(chan struct{})
	go func() {
		defer close(warm)
		// An invocation without a body: the core is there when it is refused.
		_, _ = ask(ctx, e.warm, http.MethodPost, "/invoke/"+CronService+"/Status", "Content-Type", invocationType)
	}()
	select {
	case <-warm:
	case <-ctx.Done():
	}
}

// Shutdown takes no new invocations and lets those under way come to their end: the next process may be of a build
// whose steps are in another order, and what another build has begun cannot go on there. After endShare of the time
// until ctx's deadline no further step begins; an invocation finishes the step it is in, and the next process takes
// the rest. What still runs when ctx is done is cut off, and tried again by the next process too.
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

// Close cuts everything off at once, as a crash would.
func (e *Endpoint) Close() error { return e.server.Close() }

// fingerprint hashes the manifest that discovery answers with.
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

// answer is a http.ResponseWriter that keeps what it is given.
type answer struct {
	bytes.Buffer
	header http.Header
	status int
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

// onlyWarnings drops the SDK's line for each invocation.
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
