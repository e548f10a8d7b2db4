package redisorigin_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
)

// partLoser loses, while it does, the answer to the second of two commands that go together.
type partLoser struct {
	redis.Hook
	loses bool
}

func (l *partLoser) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (l *partLoser) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *partLoser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if l.loses {
			lost := cmds[1].(*redis.Cmd)
			lost.SetVal(nil)
			lost.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

// Of a call in two parts one got its answer, and a failover loses what it had added. The call that finds out about the
// other part brings it back, and tells that it was added: nothing else would, as the part's number is then the last.
func TestAPartThatWasAnsweredIsRepeatedWithTheCallThatWasNot(t *testing.T) {
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	loser := &partLoser{}
	o := hooked(t, server.Addr(), loser)
	call := store.Chunk{Stream: streams.Add(1), Number: 1}
	for i := range 600 { // 500 of them in the first part
		c := cellNow(fmt.Sprint("k", i), time.Hour)
		call.Costs = append(call.Costs, store.Cost{Cell: c, Add: 7, AtMost: 10, Limit: 10})
	}
	answered, lost := call.Costs[0].Cell, call.Costs[500].Cell
	read(t, o, answered) // the epoch is drawn
	failOver := dumped(t, []*redis.Client{raw})
	loser.loses = true
	first := totalsOf(o.Send(t.Context(), call))
	loser.loses = false
	if !first[0].Added || !isMaybe(first[500].Err) || first[500].Epoch != 0 {
		t.Fatalf("%+v and %+v, want an answer to the first part alone", first[0], first[500])
	}
	failOver(t)
	for i := range call.Costs {
		call.Costs[i].AtMost = -1
	}
	for range 2 {
		for i, total := range totalsOf(o.Send(t.Context(), call)) {
			if want := i < 500; total.Err != nil || total.Added != want {
				t.Fatalf("cost %d: %+v, want that those of the part that was answered are added, and no other", i, total)
			}
		}
		if got := read(t, o, answered, lost); got[0] != 7 || got[1] != 0 {
			t.Errorf("the origin has %v, want the 7 that it had answered, and nothing of what was lost unanswered", got)
		}
	}
}
