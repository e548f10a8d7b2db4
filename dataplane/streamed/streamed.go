// Package streamed limits work whose cost is certain only while it goes on: streamed answers of a language model,
// downloads, exports.
//
//	streams, err := streamed.New(streamed.Config{Reservations: limiter})
//	…
//	meter, reserved := streams.Begin(ctx, dataplane.ReserveRequest{Requests: requests, Returned: true})
//	if reserved.Err != nil || !reserved.Allowed {
//		… // 429, with the decisions' RetryAfter
//	}
//	defer meter.End()
//	for token := range answer {
//		meter.Spent(1)
//		…
//	}
//
// The requests' costs are a ceiling, which is reserved before the work begins. While the work goes on, the meter
// reports the spent cost and extends the reservation. After End it settles: the spent cost counts, also past the
// ceiling and the limit, and the rest is free for others.
//
// The stream never waits for the origin: Spent and End only set values, and a goroutine of the meter makes the calls,
// with a context that the end of the request does not cancel. It makes one call at a time: when a share of the ceiling
// was spent, each Every, and never more often than ten times a second.
//
// Cost counts in the window in which it is reported. So when the first of the requests' windows has ended, the meter
// settles the reservation, and makes another from the rest of the ceiling, for as long as the stream lasts.
//
// A reservation may end early, because the process stood still or the origin was away for longer than its time to live.
// Then the meter makes another reservation, and settles there the cost that came too late for the first. So reported
// cost is counted, as long as the process lives and the origin answers within Config.Within of the stream's end. If the
// process dies, the reservation ends by itself. With Returned it then counts the last report, which lacks at most the
// cost since the last call, and otherwise all of the ceiling.
//
// httplimit.Streamed and connectlimit.Streamed meter handlers.
package streamed

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/shared/window"
)

// Reservations makes and settles reservations. *dataplane.Limiter implements it, and so can a client of a node. All
// methods must be safe for concurrent use, and a call that is repeated with the same id must change nothing.
type Reservations interface {
	Reserve(ctx context.Context, r dataplane.ReserveRequest) dataplane.Reserved
	Spend(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error)
	Settle(ctx context.Context, id string, costs ...int64) (dataplane.Settlement, error)
	Extend(ctx context.Context, id string, ttl time.Duration) (dataplane.Settlement, error)
}

const (
	// IDBytesMax is how long the id of a stream's reservation may be. Reservations that take its place have ids that are
	// up to 8 bytes longer: the id of the n-th ends with ~ and n in base 36, and no stream lasts for 36^7 of them.
	IDBytesMax = dataplane.ReservationIDBytesMax - 8

	// MetersMax is how many unsettled meters a Streams may have.
	MetersMax = dataplane.ReservationsMax

	callMax  = 5 * time.Second
	gapMin   = 100 * time.Millisecond // between calls because of cost
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
)

// Defaults of Config.
const (
	Every  = time.Second
	Parts  = 8
	Within = time.Minute
)

// ErrStopped is returned by Begin after Stop, and by Wait of a meter that Stop has interrupted.
var ErrStopped = errors.New("streamed: stopped")

// Config is the configuration of Streams.
type Config struct {
	Reservations Reservations // required

	// Every is how often a stream reports its spent cost, if it has changed: 100 ms to an hour; 0 is a second. A shorter
	// interval makes more calls, each of three round trips to the origin. A longer interval leaves more cost uncounted if
	// the process dies.
	Every time.Duration

	// Parts is how many parts the ceiling has: 1 to 1000; 0 is 8. A stream reports at once when it has spent a part, so
	// that other nodes soon have the cost of a stream past its ceiling. For example, with a ceiling of 4,000 tokens and 8
	// parts it reports each 500 tokens.
	Parts int

	// Within is how long after a stream's end the meter tries to settle: 1 s to an hour; 0 is a minute. A higher value
	// covers longer outages of the origin, but a process that stops waits for longer.
	Within time.Duration

	// Uncounted is called with spent cost that could not be counted, for each request of the reservation. It may be nil,
	// and must be safe for concurrent use.
	Uncounted func(id string, costs []int64, err error)

	// Logger receives a line for each stream to which faulty limits could not be applied, because handlers' answers do not
	// show the fault. With nil nothing is logged.
	Logger *slog.Logger
}

// Streams are the metered streams of a process. Make them with New: the zero value begins none. All methods are safe
// for concurrent use.
type Streams struct {
	cfg  Config
	stop chan struct{} // closed when meters must give up

	mu     sync.Mutex
	meters int
	over   bool
	idle   chan struct{} // closed when Stop has begun and no meter is left
}

// New makes Streams; an error names the field of cfg and its bound.
func New(cfg Config) (*Streams, error) {
	if cfg.Reservations == nil {
		return nil, errors.New("streamed: Config.Reservations is nil (a *dataplane.Limiter, for instance)")
	}
	cfg.Every, cfg.Within = cmp.Or(cfg.Every, Every), cmp.Or(cfg.Within, Within)
	cfg.Parts = cmp.Or(cfg.Parts, Parts)
	switch {
	case cfg.Every < gapMin || cfg.Every > time.Hour:
		return nil, fmt.Errorf("streamed: Config.Every is %v (%v to %v)", cfg.Every, gapMin, time.Hour)
	case cfg.Parts < 1 || cfg.Parts > 1000:
		return nil, fmt.Errorf("streamed: Config.Parts is %d (1 to 1000)", cfg.Parts)
	case cfg.Within < time.Second || cfg.Within > time.Hour:
		return nil, fmt.Errorf("streamed: Config.Within is %v (1s to %v)", cfg.Within, time.Hour)
	}
	return &Streams{cfg: cfg, stop: make(chan struct{}), idle: make(chan struct{})}, nil
}

// countable returns requests with identifiers and costs that a limiter counts. A limited caller may have chosen them,
// so a long identifier, or a cost beyond every limit, must not be an error.
func countable(requests []dataplane.Request) []dataplane.Request {
	requests = slices.Clone(requests)
	for i := range requests {
		r := &requests[i]
		r.Identifier = window.BoundIdentifier(r.Identifier)
		r.Cost = min(r.Cost, window.LimitMax)
	}
	return requests
}

// Begin reserves the most that the stream may spend. The Meter is nil unless all of it is reserved. Call the meter's
// End when the work has ended, also if it panics. ctx applies to the reserving call only: its end does not end the
// meter.
//
// A request without an ID gets an ID. Two streams with the same ID share a reservation: the larger of their costs
// counts.
func (s *Streams) Begin(ctx context.Context, r dataplane.ReserveRequest) (*Meter, dataplane.Reserved) {
	if s.cfg.Reservations == nil {
		return nil, dataplane.Reserved{
			Err: fmt.Errorf("%w: the Streams are zero (make them with New)", dataplane.ErrInvalid)}
	}
	if len(r.ID) > IDBytesMax {
		return nil, dataplane.Reserved{
			Err: fmt.Errorf("%w: id has %d bytes (1 to %d)", dataplane.ErrInvalid, len(r.ID), IDBytesMax)}
	}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	r.TTL = cmp.Or(r.TTL, time.Minute)
	r.Requests = countable(r.Requests)
	if err := s.enter(); err != nil {
		return nil, dataplane.Reserved{Err: err}
	}
	got := s.cfg.Reservations.Reserve(ctx, r)
	if got.Err != nil || !got.Allowed {
		s.leave()
		if s.cfg.Logger != nil && errors.Is(got.Err, dataplane.ErrInvalid) {
			s.cfg.Logger.Error("limits of a stream cannot be applied", "holder", r.Holder, "error", got.Err)
		}
		return nil, got
	}
	m := newMeter(ctx, s, r, got.Decisions)
	go m.run()
	return m, got
}

// Stop rejects further streams, and returns when all have ended and are settled. When ctx ends, the remaining streams
// give up, and Stop returns when their calls have ended; their reservations end by themselves. If ctx has ended before
// the call, Stop waits for up to 5 s.
func (s *Streams) Stop(ctx context.Context) error {
	if s.idle == nil {
		return nil // New has not made it: nothing has begun
	}
	ctx, done := loop.LastCalls(ctx)
	defer done()
	s.mu.Lock()
	first := !s.over
	if s.over = true; first && s.meters == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	left := s.meters
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.mu.Unlock()
	<-s.idle
	if left == 0 {
		return nil
	}
	return fmt.Errorf("streamed: %d streams were not settled: %w", left, ctx.Err())
}

func (s *Streams) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return ErrStopped
	case s.meters >= MetersMax:
		return fmt.Errorf("%w: %d streams are not settled", dataplane.ErrReservations, s.meters)
	}
	s.meters++
	return nil
}

func (s *Streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meters--; s.meters == 0 && s.over {
		close(s.idle)
	}
}

type meterKey struct{}

// With returns a context whose MeterOf is m.
func With(ctx context.Context, m *Meter) context.Context {
	ctx, begun := WithLater(ctx)
	begun(m)
	return ctx
}

// WithLater is With for a stream that begins later: it calls begun with the meter at that time.
func WithLater(ctx context.Context) (later context.Context, begun func(*Meter)) {
	at := new(atomic.Pointer[Meter])
	return context.WithValue(ctx, meterKey{}, at), at.Store
}

// MeterOf returns the meter of the stream that ctx belongs to; nil, which counts nothing, if there is none.
func MeterOf(ctx context.Context) *Meter {
	if at, ok := ctx.Value(meterKey{}).(*atomic.Pointer[Meter]); ok {
		return at.Load()
	}
	return nil
}
