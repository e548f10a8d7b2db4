package redisorigin_test

import (
	"context"
	"errors"
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
	call := claimsOf()
	for i := range 600 { // 500 of them in the first part
		c := cellNow(fmt.Sprint("k", i), time.Hour)
		call.Claims = append(call.Claims, store.Claim{Cell: c, Cost: 7, AtMost: 10, Limit: 10})
	}
	answered, lost := call.Claims[0].Cell, call.Claims[500].Cell
	read(t, o, answered) // the epoch is drawn
	failOver := dumped(t, []*redis.Client{raw})
	loser.loses = true
	first := o.Claim(t.Context(), call)
	loser.loses = false
	if !first.Added[0] || !errors.Is(first.Totals[500].Err, store.ErrMaybeApplied) {
		t.Fatalf("%+v and %+v, want an answer to the first part alone", first.Totals[0], first.Totals[500])
	}
	failOver(t)
	for i := range call.Claims {
		call.Claims[i].AtMost = -1
	}
	for range 2 {
		again := o.Claim(t.Context(), call)
		if err := errors.Join(again.Totals[0].Err, again.Totals[500].Err); err != nil {
			t.Fatal(err)
		}
		for i, added := range again.Added {
			if want := i < 500; added != want {
				t.Fatalf("claim %d: added is %v, want those of the part that was answered, and no other", i, added)
			}
		}
		if got := read(t, o, answered, lost); got[0] != 7 || got[1] != 0 {
			t.Errorf("the origin has %v, want the 7 that it had answered, and nothing of what was lost unanswered", got)
		}
	}
}
