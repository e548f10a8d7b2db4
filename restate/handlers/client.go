package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/encoding"
	"github.com/restatedev/sdk-go/ingress"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/restate/orderkey"
)

// Client calls jobs through Restate's ingress, for example Pause(ctx, CleanupJob, by). Its errors wrap
// controlplane.ErrInvalid if the caller is at fault, and controlplane.ErrUnavailable if Restate is. If ctx ends,
// Restate still executes a call that it has received.
//
// If one of several ingresses of a cluster does not answer, the client tries the next. The client signs each call as an
// order with an ID, so Restate executes the call once, however often it receives the order.
type Client struct {
	at        addresses
	ingresses []*ingress.Client
	keys      *orderkey.Keys
}

// NewClient returns a client of the ingress at url, or of a cluster's ingresses at several URLs.
// The handlers must have the same keys: see Options.Orders.
func NewClient(client *http.Client, keys *orderkey.Keys, urls ...string) *Client {
	c := &Client{keys: keys}
	c.at.set(urls) // the SDK appends paths as they are
	for _, url := range c.at.urls {
		c.ingresses = append(c.ingresses, ingress.NewClient(url, ingress.WithHttpClient(client)))
	}
	return c
}

// Status returns a snapshot of a job's state. It does not wait for a run.
func (c *Client) Status(ctx context.Context, job string) (State, error) {
	return request[restate.Void, State](ctx, c, job, "Status", restate.Void{})
}

// Start begins the job's chain if there is none.
func (c *Client) Start(ctx context.Context, job string, interval time.Duration) (State, error) {
	return request[StartRequest, State](ctx, c, job, "Start", StartRequest{IntervalMs: interval.Milliseconds()})
}

// Ensure is Start, but also begins a chain again that has died.
func (c *Client) Ensure(ctx context.Context, job string, interval time.Duration) (State, error) {
	return request[StartRequest, State](ctx, c, job, "Ensure", StartRequest{IntervalMs: interval.Milliseconds()})
}

// restore is Ensure with the order that is saved in MySQL.
func (c *Client) restore(ctx context.Context, job string, interval time.Duration,
	order controlplane.PauseOrder) (State, error) {
	return request[StartRequest, State](ctx, c, job, "Ensure",
		StartRequest{IntervalMs: interval.Milliseconds(), Order: order})
}

// Pause ends the job's chain until Resume. It waits for a run that is under way.
func (c *Client) Pause(ctx context.Context, job string, by controlplane.By) (State, error) {
	return request[controlplane.By, State](ctx, c, job, "Pause", by)
}

// Resume begins the chain of a paused job again.
func (c *Client) Resume(ctx context.Context, job string, by controlplane.By) (State, error) {
	return request[controlplane.By, State](ctx, c, job, "Resume", by)
}

// TriggerNow runs the job once, and returns when the run has ended.
func (c *Client) TriggerNow(ctx context.Context, job string, by controlplane.By) (Run, error) {
	return request[controlplane.By, Run](ctx, c, job, "TriggerNow", by)
}

func request[I, O any](ctx context.Context, c *Client, job, handler string, in I) (O, error) {
	out, err := invoke[I, O](ctx, c, CronService, job, handler, in)
	if err != nil {
		return out, fmt.Errorf("%s of job %s: %w", strings.ToLower(handler), job, c.classify(ctx, err))
	}
	return out, nil
}

// invoke calls a handler of an object and returns its answer.
func invoke[I, O any](ctx context.Context, c *Client, service, key, handler string, in I) (out O, err error) {
	answer, err := c.send(ctx, orderkey.Order{Service: service, Key: key, Handler: handler}, in)
	if err != nil {
		return out, err
	}
	if err := encoding.Unmarshal(encoding.JSONCodec, answer, &out); err != nil {
		return out, fmt.Errorf("read the answer of %s/%s: %w", service, handler, err)
	}
	return out, nil
}

// send signs an order and sends it to the ingresses in turn until one answers.
func (c *Client) send(ctx context.Context, order orderkey.Order, in any) (answer []byte, err error) {
	input, err := encoding.Marshal(encoding.JSONCodec, in)
	if err != nil {
		return nil, fmt.Errorf("write the input of %s/%s: %w", order.Service, order.Handler, err)
	}
	order.Input = string(input)
	order = c.keys.Sign(order, time.Now())
	by := cmp.Or(operations[order.Service+"/"+order.Handler], ordersChange)
	err = c.at.inTurn(ctx, func(ctx context.Context, i int) (bool, error) {
		answer, err = ingress.Service[orderkey.Order, []byte](c.ingresses[i], OrdersService, by).
			Request(ctx, order, restate.WithOutputCodec(encoding.BinaryCodec))
		return answered(err), err
	})
	return answer, err
}

// answered reports whether a node answered for the whole cluster, so that the next node need not be tried.
func answered(err error) bool {
	var said ingress.Error
	return err == nil || errors.As(err, &said) &&
		(said.IsInvocationError() || said.Code() < http.StatusInternalServerError)
}

// classify wraps an error in its kind, with advice on what to do.
func (c *Client) classify(ctx context.Context, err error) error {
	var answered ingress.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no answer in time, the call is still queued in Restate: %w", ctx.Err())
	case !errors.As(err, &answered):
		return fmt.Errorf(
			"%w: Restate's ingress does not answer at %s (is restate-server running? see --restate-ingress): %w",
			controlplane.ErrUnavailable, &c.at, err)
	case answered.IsInvocationError() && answered.Code() == http.StatusBadRequest:
		return said(controlplane.ErrInvalid, answered)
	case answered.IsInvocationError() && answered.Code() == http.StatusConflict:
		return said(controlplane.ErrConflict, answered)
	case answered.IsInvocationError() && answered.Code() == http.StatusPreconditionFailed:
		return said(controlplane.ErrChanged, answered)
	case answered.IsInvocationError() && answered.Code() == http.StatusNotFound:
		return said(controlplane.ErrNotFound, answered)
	case answered.IsInvocationError() && answered.Code() == http.StatusForbidden: // see orders
		return said(controlplane.ErrConflict, answered)
	case answered.IsInvocationError():
		return errors.New(firstLine(answered.Message()))
	case answered.Code() == http.StatusNotFound:
		return fmt.Errorf("%w: Restate does not have the handlers yet; weir-control registers them within seconds",
			controlplane.ErrUnavailable)
	}
	return fmt.Errorf("%w: Restate refused: %s", controlplane.ErrUnavailable, firstLine(answered.Message()))
}

// said returns a handler's own error, wrapped in its kind.
func said(kind error, answered ingress.Error) error {
	return fmt.Errorf("%w: %s", kind, strings.TrimPrefix(firstLine(answered.Message()), kind.Error()+": "))
}

// firstLine drops the stack that Restate appends to an error.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// CleanupClient is the cleanup's schedule for the operators' API.
type CleanupClient struct{ *Client }

// Status returns the state of the schedule.
func (c CleanupClient) Status(ctx context.Context) (cleanup.Status, error) {
	s, err := c.Client.Status(ctx, CleanupJob)
	return cleanupStatus(s), err
}

// RunNow runs the cleanup once, paused or not, and returns when the run has ended.
func (c CleanupClient) RunNow(ctx context.Context, by controlplane.By) (cleanup.Run, error) {
	r, err := c.TriggerNow(ctx, CleanupJob, by)
	return cleanupRun(r), err
}

// Pause stops the schedule until Resume.
func (c CleanupClient) Pause(ctx context.Context, by controlplane.By) (cleanup.Status, error) {
	s, err := c.Client.Pause(ctx, CleanupJob, by)
	return cleanupStatus(s), err
}

// Resume starts the schedule again, with a run at once.
func (c CleanupClient) Resume(ctx context.Context, by controlplane.By) (cleanup.Status, error) {
	s, err := c.Client.Resume(ctx, CleanupJob, by)
	return cleanupStatus(s), err
}
