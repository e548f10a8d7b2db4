package relay

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stallTimeout is how long a load waits for the next row, or the next answer. A load of millions of rows may take as
// long as it needs, but a load whose statement got lost starts again soon.
const stallTimeout = 5 * time.Second

var errStalled = fmt.Errorf("nothing came for %v: %w", stallTimeout, context.DeadlineExceeded)

// unlessStalled runs call, and cancels its context if call has not progressed for stallTimeout.
func unlessStalled(ctx context.Context, call func(ctx context.Context, progressed func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer timer.Stop()
	err := call(ctx, func() { timer.Reset(stallTimeout) })
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("%w: %w", errStalled, err)
	}
	return err
}
