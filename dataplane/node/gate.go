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
	"golang.org/x/sync/semaphore"
)

// gate stands before the service, for every protocol alike. It counts what the
// caller was answered, whoever answered; asks for a token where there are any; sheds calls beyond its slots before it
// has read a byte of their bodies; bounds those bodies; and turns a panic into
// an answer.
//
// A shed call is unavailable (HTTP 503) with Retry-After: nothing was decided,
// nothing was counted against any limit, and another node may have room.
type gate struct {
	next     http.Handler
	limiter  Limiter // of the calls that quick answers; nil: next answers all
	slots    *semaphore.Weighted
	slotsMax int64
	metrics  *metrics
	errors   *connect.ErrorWriter
	tokens   *Tokens
	logger   *slog.Logger
	ending   chan struct{}  // closed when streams are to end
	readers  sync.WaitGroup // goroutines that read from streams
	closing  sync.Mutex
	closed   bool // guarded by closing: idle holds all slots, for good
}

// shedRetryAfterSeconds is short: a slot is free again after a cold read's
// deadline at the latest.
const shedRetryAfterSeconds = "1"

func newGate(next http.Handler, limiter Limiter, slots int, tokens *Tokens, m *metrics, logger *slog.Logger) *gate {
	return &gate{
		next:     next,
		limiter:  limiter,
		slots:    semaphore.NewWeighted(int64(slots)),
		slotsMax: int64(slots),
		metrics:  m,
		errors:   connect.NewErrorWriter(),
		tokens:   tokens,
		logger:   logger,
		ending:   make(chan struct{}),
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	procedure := r.URL.Path
	call, known := g.metrics.calls[procedure]
	if !known {
		http.NotFound(w, r)
		return
	}
	if err := g.tokens.admit(r.Header.Get("Authorization")); err != nil {
		g.write(w, r, err)
		call.count(connect.CodeUnauthenticated.String())
		return
	}
	if procedure == streamProcedure { // takes a slot for each of its requests
		g.serve(w, r, call, func() { withoutDeadlines(w) })
		return
	}
	if !g.slots.TryAcquire(1) {
		g.write(w, r, g.full())
		call.count(connect.CodeUnavailable.String())
		return
	}
	defer g.slots.Release(1)
	g.metrics.inFlight.Inc()
	defer g.metrics.inFlight.Dec()
	g.serve(w, r, call, func() { boundBody(w, r, procedure) })
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request, call callMetrics, bound func()) {
	start := time.Now()
	answer := &answer{ResponseWriter: w}
	defer func() {
		if p := recover(); p != nil {
			g.panicked(answer, r, p)
		}
		call.count(answerCode(w.Header(), answer.statusSent()))
		call.observe(start)
		if answer.broken {
			panic(http.ErrAbortHandler)
		}
	}()
	if g.quick(answer, r) {
		return
	}
	bound()
	g.next.ServeHTTP(answer, r)
	answer.explain()
}

// full is what a shed call is told.
func (g *gate) full() *connect.Error {
	err := connect.NewError(connect.CodeUnavailable, fmt.Errorf("more than %d calls in flight on this node", g.slotsMax))
	err.Meta().Set("Retry-After", shedRetryAfterSeconds)
	return err
}

// panicked answers a call whose handler panicked; where the answer had begun
// already, it is cut off, so that nobody takes half of it for the whole.
func (g *gate) panicked(answer *answer, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		answer.broken = true
		return
	}
	internal := g.recovered(r.Context(), r.URL.Path, p)
	if answer.status != 0 {
		answer.broken = true
		return
	}
	g.write(answer, r, internal)
}

// recovered counts and logs a panic, and returns what the caller is told of it. It
// is to be called while the panic's stack is still there.
func (g *gate) recovered(ctx context.Context, procedure string, p any) *connect.Error {
	g.metrics.panics.Inc()
	g.logger.ErrorContext(ctx, "panic in a call", "procedure", procedure, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return connect.NewError(connect.CodeInternal, errors.New("internal error, see this node's log"))
}

func (g *gate) write(w http.ResponseWriter, r *http.Request, err error) {
	if writeErr := g.errors.Write(w, r, err); writeErr != nil {
		g.logger.DebugContext(r.Context(), "caller did not take an error", "error", writeErr)
	}
}

// idle waits until no call is in flight. No call is let in afterwards.
func (g *gate) idle(ctx context.Context) error {
	g.closing.Lock()
	defer g.closing.Unlock()
	if g.closed {
		return nil
	}
	if err := g.slots.Acquire(ctx, g.slotsMax); err != nil {
		return fmt.Errorf("wait for calls in flight: %w", err)
	}
	g.closed = true
	return nil
}

// answer remembers how an HTTP answer began.
type answer struct {
	http.ResponseWriter
	status int  // 0 until the header is sent
	broken bool // to be cut off
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Flush is part of what connect looks for in a ResponseWriter.
func (a *answer) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Unwrap leads http.ResponseController to the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// statusSent is what net/http makes of an answer that nobody began: 200; and of
// one that is cut off: nothing the caller could read, counted as a failure.
func (a *answer) statusSent() int {
	switch {
	case a.broken:
		return http.StatusInternalServerError
	case a.status == 0:
		return http.StatusOK
	}
	return a.status
}

// explain says why to a person whose request was no call in any protocol;
// connect leaves these two answers without a body.
func (a *answer) explain() {
	switch a.status {
	case http.StatusUnsupportedMediaType:
		_, _ = io.WriteString(a, "Content-Type must be application/json, application/proto, application/grpc or application/grpc-web\n")
	case http.StatusMethodNotAllowed:
		_, _ = io.WriteString(a, "method must be POST\n")
	}
}
