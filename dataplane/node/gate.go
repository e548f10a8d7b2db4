package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/servertls"
)

// gate handles a call before the service does, in every protocol. It:
//
//   - requires a token if the server has tokens
//   - reads a whole body, within its bounds, before the call does any other work
//   - sheds calls above its slots
//   - counts every response, from any layer
//   - turns a panic into a response
//
// A shed call is unavailable (HTTP 503) with Retry-After: nothing was decided,
// nothing was counted against any limit, and another node may have room.
type gate struct {
	*bounds
	next    http.Handler
	service service // handles the calls of fastpath; without a limiter, next handles all calls
	slots   *bounded.Slots
	metrics *metrics
	errors  *connect.ErrorWriter
	tokens  *access.Tokens // nil: no token is required
	tls     *servertls.TLS // nil: connections are not encrypted
	needs   map[string]need
	logger  *slog.Logger
	ending  chan struct{}  // closed when streams are to end
	readers sync.WaitGroup // goroutines that read from streams
	closing sync.Mutex
	closed  bool // guarded by closing: idle holds all slots, for good

	open     sync.Mutex
	standing map[*standing]struct{} // open streams; guarded by open
	judged   [2]int64               // the version when all were last judged; guarded by open
}

func newGate(next http.Handler, own service, config *Config, m *metrics, b *bounds) *gate {
	return &gate{
		bounds:  b,
		next:    next,
		service: own,
		slots:   bounded.NewSlots(bounded.Calls, config.MaxInFlight),
		metrics: m,
		errors:  connect.NewErrorWriter(),
		tokens:  config.Tokens,
		tls:     config.TLS,
		needs:   needsOf(config),
		logger:  config.Logger,
		ending:  make(chan struct{}),
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call, known := g.metrics.calls[r.URL.Path]
	if !known {
		http.NotFound(w, r)
		return
	}
	g.serve(w, r, call, g)
}

// protocol handles calls of one kind. For example, the errors of routesGate have another format than the errors of
// gate.
type protocol interface {
	route(procedure string) bounded.Route
	answer(w *bounded.Answer, r *http.Request, body []byte)
	refuse(w http.ResponseWriter, r *http.Request, err error)
	code(a *bounded.Answer) string
}

// serve handles a call from its headers to its response. It holds a slot while the call is in progress; a stream takes
// a slot for each of its requests.
func (g *gate) serve(w http.ResponseWriter, r *http.Request, counters callMetrics, p protocol) {
	by, err := g.admit(w, r)
	if err != nil {
		p.refuse(w, r, err)
		counters.count(connect.CodeOf(err).String())
		return
	}
	if r.URL.Path == streamProcedure {
		g.serveStream(w, r, counters, by)
		return
	}
	g.metrics.inFlight.Inc()
	start := time.Now()
	var held struct {
		bounded.Call
		bounded.Answer
	}
	bound, answer := &held.Call, &held.Answer
	answer.ResponseWriter = w
	defer bound.End()
	aborted := g.work(bound, answer, r, by, p)
	bound.Worked()
	g.metrics.inFlight.Dec()
	counters.observe(start)
	if aborted {
		counters.count(connect.CodeInternal.String())
		panic(http.ErrAbortHandler)
	}
	counters.count(p.code(answer))
	ok, aborted := bound.Sends(answer)
	if !ok {
		g.refused[bounded.BoundMemory].Inc()
	}
	if aborted {
		panic(http.ErrAbortHandler)
	}
	if !ok {
		return
	}
	if err := answer.Send(r); err != nil {
		g.logger.DebugContext(r.Context(), "the answer could not be sent to the caller", "error", err)
	}
}

// work leaves the call's answer in answer. It returns true where the handler wants the connection
// cut off instead.
func (g *gate) work(bound *bounded.Call, answer *bounded.Answer, r *http.Request, by holder,
	p protocol) (aborted bool) {
	caller := by.caller
	body, err := bound.Read(answer, r, g.calls, caller, p.route(r.URL.Path))
	if err == nil {
		err = g.slots.Take(caller)
	}
	if err != nil {
		g.count(err)
		p.refuse(answer, r, refusedBy(err))
		return false
	}
	defer g.slots.Give(caller)
	defer func() {
		switch thrown := recover(); thrown {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			answer.Reset()
			p.refuse(answer, r, g.recovered(r.Context(), r.URL.Path, thrown))
		}
	}()
	ctx := access.WithScope(bound.Context(r.Context()), by.scope)
	ctx = by.label(ctx, r.URL.Path)
	if ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	p.answer(answer, r, body)
	return false
}

// serveStream serves a stream without the server's deadlines, because converse has its own. Over
// HTTP/1.x, streams are refused, and the refusal keeps the deadlines because the server reads the
// request's body.
func (g *gate) serveStream(w http.ResponseWriter, r *http.Request, call callMetrics, by holder) {
	a := &streamAnswer{ResponseWriter: w}
	defer func() {
		if p := recover(); p != nil {
			_ = g.recovered(r.Context(), r.URL.Path, p) // the connection is cut off instead
			call.count(connect.CodeInternal.String())
			panic(http.ErrAbortHandler)
		}
		call.count(answerCode(w.Header(), max(a.status, http.StatusOK)))
	}()
	if r.ProtoMajor >= 2 {
		withoutDeadlines(w)
	}
	at := g.stand(credentialsOfHTTP(r), by)
	defer g.leave(at)
	g.next.ServeHTTP(a, r.WithContext(withStanding(by.label(r.Context(), r.URL.Path), at)))
	explain(a, a.status)
}

// streamAnswer remembers the status of a stream's answer.
type streamAnswer struct {
	http.ResponseWriter
	status int // 0 until the header is sent
}

func (a *streamAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *streamAnswer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, which connect requires of a ResponseWriter.
func (a *streamAnswer) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Unwrap leads http.ResponseController to the connection.
func (a *streamAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// standingKey is the context key of a Connect stream's standing.
type standingKey struct{}

func withStanding(ctx context.Context, s *standing) context.Context {
	return context.WithValue(access.WithScopeAt(ctx, s.scope), standingKey{}, s)
}

func standingIn(ctx context.Context) *standing {
	s, _ := ctx.Value(standingKey{}).(*standing)
	return s
}

func (g *gate) route(procedure string) bounded.Route { return routeOf(procedure) }

func (g *gate) answer(w *bounded.Answer, r *http.Request, body []byte) {
	if g.fastpath(w, r, body) {
		return
	}
	g.next.ServeHTTP(w, r)
	explain(w, w.Status())
}

func (g *gate) code(a *bounded.Answer) string { return answerCode(a.Header(), a.Status()) }

func (g *gate) refuse(w http.ResponseWriter, r *http.Request, err error) { g.write(w, r, err) }

// recovered counts and logs a panic, and returns the error for its caller. Call it
// while the panic's stack is still there.
func (g *gate) recovered(ctx context.Context, procedure string, p any) *connect.Error {
	g.metrics.panics.Inc()
	g.logger.ErrorContext(ctx, "panic in a call", "procedure", procedure, "panic", fmt.Sprint(p), "stack",
		string(debug.Stack()))
	return connect.NewError(connect.CodeInternal, errors.New("internal error, see this node's log"))
}

func (g *gate) write(w http.ResponseWriter, r *http.Request, err error) {
	if writeErr := g.errors.Write(w, r, err); writeErr != nil {
		g.logger.DebugContext(r.Context(), "the error could not be sent to the caller", "error", writeErr)
	}
}

// idle waits until no call is worked on. No call is let in afterwards.
func (g *gate) idle(ctx context.Context) error {
	g.closing.Lock()
	defer g.closing.Unlock()
	if g.closed {
		return nil
	}
	if err := g.slots.TakeAll(ctx); err != nil {
		return fmt.Errorf("wait for calls in flight: %w", err)
	}
	g.closed = true
	return nil
}

// explain writes the reason for a person whose request was no call in any protocol.
// connect leaves these two answers without a body.
func explain(w io.Writer, status int) {
	switch status {
	case http.StatusUnsupportedMediaType:
		_, _ = io.WriteString(w, "Content-Type must be application/json, application/proto, application/grpc or "+
			"application/grpc-web\n")
	case http.StatusMethodNotAllowed:
		_, _ = io.WriteString(w, "method must be POST\n")
	}
}
