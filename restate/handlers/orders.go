package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/encoding"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/restate/orderkey"
)

// OrdersService is the service's name in Restate.
const OrdersService = "WeirOrders"

// Handlers of OrdersService.
const (
	ordersChange = "Change"
	ordersRead   = "Read"
)

// orderRetention is how long Restate keeps the answer to an order, so that the same order, sent again, gets that answer
// and has no second effect. It must exceed the time for which an order is valid.
const orderRetention = time.Hour

// readOnly are the options of handlers that change nothing: neither their journals nor their answers are kept, because
// reads come every few seconds, and an answer can be a third of a megabyte.
var readOnly = []restate.HandlerOption{restate.WithJournalRetention(0), restate.WithIdempotencyRetention(0)}

// operations maps each handler that a signed order can call, by service and name, to the handler of OrdersService that
// calls it. Only Weir's own handlers can call any other handler.
var operations = map[string]string{
	CronService + "/Start":      ordersChange,
	CronService + "/Ensure":     ordersChange,
	CronService + "/Pause":      ordersChange,
	CronService + "/Resume":     ordersChange,
	CronService + "/TriggerNow": ordersChange,
	CronService + "/Status":     ordersRead,
	CronService + "/Document":   ordersRead,

	RolloutsService + "/Start":    ordersChange,
	RolloutsService + "/TakeBack": ordersChange,
	RolloutsService + "/Repair":   ordersChange,
	RolloutsService + "/Standing": ordersRead,

	RolloutService + "/Operate": ordersChange,
	RolloutService + "/Ensure":  ordersChange,
	RolloutService + "/Status":  ordersRead,

	RetirementService + "/Start":   ordersChange,
	RetirementService + "/Approve": ordersChange,
	RetirementService + "/Abort":   ordersChange,
	RetirementService + "/Ensure":  ordersChange,
	RetirementService + "/Status":  ordersRead,
	RetirementService + "/List":    ordersRead,
}

// orders is the only service that callers can reach through Restate's ingress. It checks that weir-control signed an
// order, and then calls the handler that the order names. All other services are private. So a new handler is out of
// reach until it is listed in operations, and then it accepts signed orders only.
type orders struct {
	keys  *orderkey.Keys
	steps *stepper
}

func (o *orders) definition() restate.ServiceDefinition {
	output := restate.WithOutputCodec(encoding.BinaryCodec) // the answer is passed on unchanged
	return restate.NewService(OrdersService,
		restate.WithDocumentation("Passes on orders that weir-control signed. Operate Weir with weirctl."),
		// The called handler keeps its own journal and answer, so this service need not.
		restate.WithJournalRetention(0),
		restate.WithIdempotencyRetention(0),
		retries(10*time.Second, 40, restate.KillOnMaxAttempts())).
		Handler(ordersChange, restate.NewServiceHandler(o.change, output)).
		Handler(ordersRead, restate.NewServiceHandler(o.read, output))
}

// change passes on an order that changes something. Because of its ID Restate executes it once.
func (o *orders) change(ctx restate.Context, order orderkey.Order) ([]byte, error) {
	if err := o.check(ctx, &order, ordersChange); err != nil {
		return nil, err
	}
	called := restate.Object[[]byte](ctx, order.Service, order.Key, order.Handler, restate.WithBinary)
	once := restate.WithIdempotencyKey(order.ID)
	if order.OneWay {
		called.Send([]byte(order.Input), once)
		return nil, nil
	}
	answer, terminal := called.Request([]byte(order.Input), once)
	if terminal != nil { // a nil TerminalError must not become a non-nil error
		return nil, terminal
	}
	return answer, nil
}

// read passes on an order that changes nothing. Restate keeps neither its journal nor its answer.
func (o *orders) read(ctx restate.Context, order orderkey.Order) ([]byte, error) {
	if err := o.check(ctx, &order, ordersRead); err != nil {
		return nil, err
	}
	answer, terminal := restate.Object[[]byte](ctx, order.Service, order.Key, order.Handler, restate.WithBinary).
		Request([]byte(order.Input))
	if terminal != nil {
		return nil, terminal
	}
	return answer, nil
}

// check returns an error if an order is not signed, has expired, or is not for this handler. The check is a step,
// because a replay may have other keys and another time.
func (o *orders) check(ctx restate.Context, order *orderkey.Order, by string) error {
	problem, err := controlplane.Do(o.steps.on(ctx), "check the signature", func(context.Context) (string, error) {
		if refused := o.keys.Check(order, time.Now()); refused != nil {
			return refused.Error(), nil //nolint:nilerr // a refusal is a result: it is journaled, and not retried
		}
		if operations[order.Service+"/"+order.Handler] != by {
			return fmt.Sprintf("%v: %s of %s passes on no call of %s/%s", orderkey.ErrRefused, by, OrdersService,
				order.Service, order.Handler), nil
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	if problem != "" {
		return restate.ToTerminalError(errors.New(problem), restate.WithErrorCode(http.StatusForbidden))
	}
	return nil
}
