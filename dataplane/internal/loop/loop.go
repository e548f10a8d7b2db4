// Package loop runs steps at a cadence, and owns the goroutines that do.
package loop

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Lifecycle owns the goroutines of a limiter's loops: started once, stopped once,
// and Stop returns once the last of them has.
type Lifecycle struct {
	loops  Calls              // its mutex guards cancel, too
	cancel context.CancelFunc // nil before start
}

// Start makes the context that the loops end with; false when it was started or
// stopped before.
func (c *Lifecycle) Start(parent context.Context) (context.Context, bool) {
	c.loops.mu.Lock()
	defer c.loops.mu.Unlock()
	if c.cancel != nil || c.loops.stopped {
		return nil, false
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	c.cancel = cancel
	return ctx, true
}

// Stop ends the loops and waits for them; false when it was stopped before.
func (c *Lifecycle) Stop() bool {
	c.loops.mu.Lock()
	first := !c.loops.stopped
	c.loops.stopped = true
	if c.cancel != nil {
		c.cancel()
	}
	c.loops.mu.Unlock()
	c.loops.Wait()
	return first
}

// Go runs a loop in a goroutine, between Start and Stop. After Stop it does nothing. If Stop is called while Start
// still starts loops, Stop waits for the loops that were started.
func (c *Lifecycle) Go(f func()) { c.loops.Start(f) }

// lastCallsTime bounds the last calls of a Stop whose context has ended.
const lastCallsTime = 5 * time.Second

// LastCalls returns the context for the calls with which something stops: ctx itself, or, if ctx
// has ended already, a context that ends after 5 s. Programs often stop because a signal has ended
// their context, and the limiter must still send its counts.
func LastCalls(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), lastCallsTime)
}

// Calls owns goroutines that requests start, and that Stop waits for.
type Calls struct {
	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

// Start runs f in a goroutine; false, and nothing runs, once stopped.
func (g *Calls) Start(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.running.Go(f)
	return true
}

// Begin counts a call that its caller makes in its own goroutine; end it with Done. It returns
// false after a stop.
func (g *Calls) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.running.Add(1)
	return true
}

// Done ends a call that Begin counted.
func (g *Calls) Done() { g.running.Done() }

// IsStopped reports whether Stop was called.
func (g *Calls) IsStopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopped
}

// Stop rejects further calls, and waits for running calls.
func (g *Calls) Stop() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.running.Wait()
}

// Wait waits for running calls.
func (g *Calls) Wait() { g.running.Wait() }

// Changes wakes loops whose interval may have changed. The zero value is ready to use. All methods
// may be called concurrently.
type Changes struct {
	mu   sync.Mutex
	next chan struct{}
}

// Notify wakes the loops that are waiting.
func (c *Changes) Notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// Next returns a channel that the next Notify closes.
func (c *Changes) Next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Every runs step about once per interval until ctx ends. Targets stand an interval
// apart, and each run is spread by up to jitter (a fraction of the interval) around
// its target, so that neither a slow step nor the jitter drifts the cadence. A
// target that has passed is skipped: step never runs twice in a row to catch up.
// The interval is read before each wait, because tuning changes it, and again when changed wakes the loop; nil never
// does. The first run is not spread: the caller has not read its tuning yet.
func Every(ctx context.Context, cadence func() (interval time.Duration, jitter float64),
	changed func() <-chan struct{}, step func(context.Context)) {
	target := time.Now()
	for first := true; ; first = false {
		last := target
		due := func() time.Time {
			interval, jitter := cadence()
			if first {
				jitter = 0
			}
			target = last.Add(interval)
			if late := time.Since(target); late > 0 {
				target = target.Add((late/interval + 1) * interval)
			}
			return target.Add(time.Duration((2*rand.Float64() - 1) * jitter * float64(interval)))
		}
		if !Sleep(ctx, due, changed, nil) {
			return
		}
		step(ctx)
	}
}

// Sleep waits until the time that due returns, or until woken is signaled, and returns false if ctx has ended. It calls
// due again each time that the channel of changed is closed: a wait that began with a longer interval ends with the
// shorter interval.
func Sleep(ctx context.Context, due func() time.Time, changed func() <-chan struct{}, woken <-chan struct{}) bool {
	for {
		var changes <-chan struct{}
		if changed != nil {
			changes = changed() // before due, which must not miss a change
		}
		timer := time.NewTimer(time.Until(due()))
		select {
		case <-ctx.Done():
		case <-woken:
		case <-timer.C:
		case <-changes:
			timer.Stop()
			continue
		}
		timer.Stop()
		return ctx.Err() == nil
	}
}

// Pause waits for d, or until ctx ends, and then returns ctx's error.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
