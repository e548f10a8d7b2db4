package redisorigin_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// pipelineFault stands between a pipeline of commands and the server.
type pipelineFault func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

// chainFault does something to chunks that are sent again after a failover, in one pipeline of several commands.
type chainFault struct {
	redis.Hook
	act pipelineFault // once; nil for nothing
}

func (f *chainFault) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *chainFault) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *chainFault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if act := f.act; act != nil && len(cmds) > 1 {
			f.act = nil
			return act(ctx, cmds, next)
		}
		return next(ctx, cmds)
	}
}

// Chunks that are sent again follow each other: where one gets lost, or another failover loses what they follow, those
// behind it are not applied either, and the next call sends all of them.
func TestChunksThatAreSentAgainFollowEachOther(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	for what, fault := range map[string]func(empty func(testing.TB)) pipelineFault{
		"the first of them gets lost": func(func(testing.TB)) pipelineFault {
			return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				cmds[0].SetErr(io.ErrUnexpectedEOF)
				return next(ctx, cmds[1:])
			}
		},
		"another failover loses what they follow": func(empty func(testing.TB)) pipelineFault {
			return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				empty(t)
				return next(ctx, cmds)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			command(t, raw, "FLUSHALL")
			hook := &chainFault{}
			o := hooked(t, server.Addr(), hook)
			var cells []window.Cell
			stream := streams.Add(1)
			send := func(number int64) error {
				reply, err := o.Send(t.Context(), store.Chunk{Stream: stream, Number: number,
					Costs: []store.Cost{{Cell: cells[number-1], Add: 1 << number, Limit: 99}}})
				return errors.Join(err, errOf(reply))
			}
			for _, name := range []string{"a", "b", "c", "d"} {
				cells = append(cells, cellNow(name, time.Hour))
			}
			read(t, o, cells...) // the epoch is drawn
			empty := dumped(t, []*redis.Client{raw})
			failOver := func(testing.TB) {}
			for number := range int64(3) {
				if err := send(number + 1); err != nil {
					t.Fatal(err)
				}
				if number == 0 {
					failOver = dumped(t, []*redis.Client{raw})
				}
			}
			failOver(t)
			hook.act = fault(empty)
			if err := send(4); err == nil || hook.act != nil {
				t.Errorf("a chunk that follows lost ones: %v", err)
			}
			for range 2 {
				if err := send(4); err != nil {
					t.Fatal(err)
				}
				if got := read(t, o, cells...); got[0] != 2 || got[1] != 4 || got[2] != 8 || got[3] != 16 {
					t.Errorf("the origin has %v, want 2, 4, 8 and 16", got)
				}
			}
		})
	}
}

// errOf is what is wrong with a reply's totals.
func errOf(reply store.Reply) (err error) {
	for _, total := range reply.Totals {
		err = errors.Join(err, total.Err)
	}
	return err
}

// hooked is an Origin over a client with a hook.
func hooked(t testing.TB, addr string, hook redis.Hook) *redisorigin.Origin {
	t.Helper()
	options, err := redisorigin.ClientOptions(patient("redis://" + addr))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(hook)
	o, err := redisorigin.New([]redisorigin.Partition{{Client: client}}, redisorigin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}
