package redisorigin_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/storetest"
)

// steppedClock has the scripts of a client take their server's clock to be ahead, as far as it is set.
type steppedClock struct{ aheadMs atomic.Int64 }

func (c *steppedClock) step(d time.Duration) { c.aheadMs.Add(d.Milliseconds()) }

func (c *steppedClock) ahead() time.Duration {
	return time.Duration(c.aheadMs.Load()) * time.Millisecond
}

// set changes the script of a command.
func (c *steppedClock) set(cmd redis.Cmder) {
	args := cmd.Args()
	if len(args) < 2 || !strings.EqualFold(fmt.Sprint(args[0]), "eval") {
		return
	}
	const reads = "redis.call('TIME')"
	stepped := fmt.Sprintf(`(function()
local t = %s
local us = t[1] * 1000000 + t[2] + (%d) * 1000
return {string.format('%%.0f', math.floor(us / 1000000)), string.format('%%.0f', us %% 1000000)}
end)()`, reads, c.aheadMs.Load())
	args[1] = strings.ReplaceAll(args[1].(string), reads, stepped)
}

func (c *steppedClock) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *steppedClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.set(cmd)
		return next(ctx, cmd)
	}
}

func (c *steppedClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.set(cmd)
		}
		return next(ctx, cmds)
	}
}

// stepping replaces the clock of an origin's servers by a clock that can be set.
func stepping(o storetest.Origin, clock *steppedClock) storetest.Origin {
	real, ahead := o.Clock, clock.ahead()
	o.Clock = func(t testing.TB) time.Time { return real(t).Add(clock.ahead()) }
	o.Step = func(_ testing.TB, d time.Duration) { clock.step(d) }
	clock.step(-ahead) // undoes the steps of another subtest
	return o
}

func TestOriginWithASteppedClockKeepsTheContract(t *testing.T) {
	server, raw := serverOfUser(t)
	way, clock := newLossyWay(t, asUser(server.Addr())), new(steppedClock)
	way.client.AddHook(clock)
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return stepping(way.origin(t, raw), clock) })
	wantNoDenials(t, raw)
}
