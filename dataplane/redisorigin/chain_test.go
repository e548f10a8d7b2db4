package redisorigin_test

import (
	"context"
	"errors"
	"io"
	"slices"
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

// callFault does something to a call of an origin, which is a pipeline.
type callFault struct {
	redis.Hook
	calls int           // before the call that it affects
	act   pipelineFault // once; nil for nothing
}

func (f *callFault) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *callFault) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *callFault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		act := f.act
		if f.calls--; act == nil || f.calls >= 0 {
			return next(ctx, cmds)
		}
		f.act = nil
		return act(ctx, cmds, next)
	}
}

// Chunks that are sent again after a failover follow the chunks that the server has: if a chunk or its answer is lost,
// or another failover loses the chunk before, the server has each cost exactly once in the end.
func TestChunksThatAreSentAgainFollowEachOther(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	for what, of := range map[string]struct {
		fails bool
		fault func(empty func(testing.TB)) pipelineFault
	}{
		"the first of them gets lost": {true, func(func(testing.TB)) pipelineFault {
			return func(_ context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
				cmds[0].SetErr(io.ErrUnexpectedEOF)
				return io.ErrUnexpectedEOF
			}
		}},
		"its answer gets lost": {true, func(func(testing.TB)) pipelineFault {
			return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				_ = next(ctx, cmds)
				cmds[0].(*redis.Cmd).SetVal(nil)
				cmds[0].SetErr(io.ErrUnexpectedEOF)
				return io.ErrUnexpectedEOF
			}
		}},
		"another failover loses what they follow": {false, func(empty func(testing.TB)) pipelineFault {
			return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				empty(t)
				return next(ctx, cmds)
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			command(t, raw, "FLUSHALL")
			hook := &callFault{}
			o := keep(hooked(t, server.Addr(), hook))
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
			reply, err := o.Read(t.Context(), cells) // the epoch is drawn
			if err != nil || len(reply.Totals) != len(cells) {
				t.Fatal(err)
			}
			regions := func() (all []int64) {
				for _, c := range cells {
					all = append(all, regionOf(t, o, c))
				}
				return all
			}
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
			hook.calls, hook.act = 1, of.fault(empty)
			if err := send(4); (err != nil) != of.fails || hook.act != nil {
				t.Errorf("a chunk that follows lost ones: %v", err)
			}
			for range 2 {
				if err := send(4); err != nil {
					t.Fatal(err)
				}
				if got := regions(); !slices.Equal(got, []int64{2, 4, 8, 16}) {
					t.Errorf("the origin has %v, want 2, 4, 8 and 16", got)
				}
			}
		})
	}
}

// errOf returns the errors of a reply's totals.
func errOf(reply store.Reply) (err error) {
	for _, total := range reply.Totals {
		err = errors.Join(err, total.Err)
	}
	return err
}

// hooked returns an Origin on a client with a hook.
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
