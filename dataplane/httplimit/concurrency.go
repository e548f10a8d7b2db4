package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// Acquirer grants leases. *dataplane.Limiter is an Acquirer. Implementations must be safe for concurrent use.
type Acquirer interface {
	Acquire(ctx context.Context, request dataplane.ConcurrencyRequest) (dataplane.Lease, dataplane.ConcurrencyDecision)
	AcquireWait(ctx context.Context, request dataplane.ConcurrencyRequest) (dataplane.Lease, dataplane.ConcurrencyDecision)
}

// Concurrency lets each caller have a number of requests under way at once, on all nodes of a region together. Use it
// if requests occupy a resource while they run, for example a database connection. All fields are constant once it is
// used.
type Concurrency struct {
	Limiter Acquirer // required

	// Workspace and Namespace are the names under which its keys are counted. No Policy should use the namespace, because
	// an override would then apply to both.
	Workspace, Namespace string

	// Key returns the identifier to count, or false. A request without a key passes if Open is set, and is rejected with
	// 400 otherwise. Required.
	Key  func(Call) (identifier string, found bool)
	Open bool

	Limit int64         // requests at once, 0 (blocks) or more
	TTL   time.Duration // see dataplane.ConcurrencyRequest

	// Wait is how long a request waits for its turn. With 0 it does not wait. For example, set 2 s if a short queue is
	// better than an error.
	Wait time.Duration

	// Logger receives a line for each request to which a faulty limit could not be applied, because answers do not show
	// the fault. With nil nothing is logged.
	Logger *slog.Logger
}

// Handler holds a slot for as long as next works on a request, also if it panics. A request without a slot is answered
// with 429 and Retry-After, or with 503 if the limiter cannot decide or has no room.
//
// If a request's slot is lost meanwhile, its context is cancelled, with the lease's error as its cause.
func (c *Concurrency) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, d, err := c.Acquire(r.Context(), httpCall{r})
		if err != nil || !d.Allowed {
			refuse(w, &d, err)
			return
		}
		defer lease.Release()
		ctx, stop := While(r.Context(), lease)
		defer stop()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// While returns a context that is cancelled when the lease is lost, with the lease's error as its cause. Call stop when
// the work is done.
func While(ctx context.Context, lease dataplane.Lease) (within context.Context, stop func()) {
	within, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-lease.Done():
			cancel(lease.Err())
		case <-within.Done():
		}
	}()
	return within, func() {
		cancel(nil)
		<-ended
	}
}

// ErrNoKey is the error of a call without a key.
var ErrNoKey = errors.New("httplimit: the request has no key for its concurrency limit")

// Acquire requests a lease for a call, and waits for at most Wait. The error is ErrNoKey, or the decision's.
func (c *Concurrency) Acquire(ctx context.Context, call Call) (dataplane.Lease, dataplane.ConcurrencyDecision, error) {
	identifier, found := c.Key(call)
	if !found || identifier == "" {
		if c.Open {
			return dataplane.Lease{}, dataplane.ConcurrencyDecision{Allowed: true}, nil
		}
		return dataplane.Lease{}, dataplane.ConcurrencyDecision{}, ErrNoKey
	}
	request := dataplane.ConcurrencyRequest{Workspace: c.Workspace, Namespace: c.Namespace,
		Identifier: window.BoundIdentifier(identifier), Limit: c.Limit, TTL: c.TTL}
	acquire := c.Limiter.Acquire
	if c.Wait > 0 {
		within, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		ctx, acquire = within, c.Limiter.AcquireWait
	}
	lease, d := acquire(ctx, request)
	if c.Logger != nil && errors.Is(d.Err, dataplane.ErrInvalid) {
		c.Logger.Error("concurrency limit cannot be applied", "namespace", c.Namespace, "path", call.Path(), "error", d.Err)
	}
	return lease, d, d.Err
}

// refuse answers a request that has no slot.
func refuse(w http.ResponseWriter, d *dataplane.ConcurrencyDecision, err error) {
	p := Problem{Type: "about:blank", Status: http.StatusTooManyRequests,
		Detail: fmt.Sprintf("%d requests are under way already", d.Limit)}
	switch {
	case errors.Is(err, ErrNoKey):
		p.Status, p.Detail = http.StatusBadRequest, ErrNoKey.Error()
	case errors.Is(err, dataplane.ErrInvalid):
		p.Status, p.Detail = http.StatusInternalServerError, "the concurrency limit could not be applied"
	case err != nil || d.Source.Degraded():
		p.Status, p.Type = http.StatusServiceUnavailable, TypeTemporaryReducedCapacity
		p.Detail = "the limiter cannot decide about this request at the moment"
	}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set(fieldRetryAfter, strconv.FormatInt(max(1, Seconds(d.RetryAfter)), 10))
	}
	writeProblem(w, p)
}
