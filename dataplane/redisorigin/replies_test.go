package redisorigin

import (
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
)

// The connection broke between two replies: what was answered is known, and only the
// rest may have been applied.
func TestAnsweredBeforeTheConnectionBroke(t *testing.T) {
	cmds := []*redis.Cmd{redis.NewCmd(t.Context()), redis.NewCmd(t.Context())}
	cmds[0].SetVal([]any{int64(7), errors.New("ERR value is not an integer"), "9007199254740993"})
	for _, cmd := range cmds {
		cmd.SetErr(io.EOF)
	}
	added := make([]store.Added, 0, 5)
	for i, c := range []call{{from: 0, to: 3, cmd: cmds[0]}, {from: 3, to: 5, cmd: cmds[1]}} {
		c.reply, c.err = replyOf(cmds[i], io.EOF)
		added = append(added, answersOf(c)...)
	}
	if added[0] != (store.Added{Total: 7}) || added[2] != (store.Added{Total: 9007199254740993}) {
		t.Errorf("answered: %+v and %+v", added[0], added[2])
	}
	if added[1].Err == nil || errors.Is(added[1].Err, store.ErrMaybeApplied) {
		t.Errorf("answered with an error: %+v", added[1])
	}
	for _, a := range added[3:] {
		if !errors.Is(a.Err, store.ErrMaybeApplied) || !errors.Is(a.Err, io.EOF) {
			t.Errorf("not answered: %+v", a)
		}
	}
}

// answersOf is what a call's cells are told.
func answersOf(c call) []store.Added {
	added := make([]store.Added, c.to-c.from)
	replies, err := c.replies()
	for i := range added {
		if err != nil {
			added[i].Err = sendError(err)
		} else {
			added[i] = addedOf(replies[i])
		}
	}
	return added
}

func TestClaimReplies(t *testing.T) {
	refusal := errors.New("ERR value is no count")
	for _, c := range []struct {
		reply any
		want  store.Claimed
	}{
		{[]any{int64(7), int64(1)}, store.Claimed{Total: 7, Added: true}},
		{[]any{"7", int64(0)}, store.Claimed{Total: 7}},
		{[]any{"9007199254740993", int64(1)}, store.Claimed{Total: 9007199254740993, Added: true}},
	} {
		if got := claimedOf(c.reply); got != c.want {
			t.Errorf("reply %#v: %+v, want %+v", c.reply, got, c.want)
		}
	}
	if got := claimedOf(refusal); !errors.Is(got.Err, refusal) || errors.Is(got.Err, store.ErrMaybeApplied) || got.Added {
		t.Errorf("a refusal: %+v", got)
	}
	for _, reply := range []any{nil, int64(7), "7", []any{}, []any{int64(7)}, []any{int64(7), int64(2)}, []any{int64(7), "1"}, []any{"x", int64(1)}, []any{nil, nil}} {
		if got := claimedOf(reply); !errors.Is(got.Err, store.ErrMaybeApplied) || got.Added || got.Total != 0 {
			t.Errorf("reply %#v: %+v", reply, got)
		}
	}
}

// A reply that makes no sense says nothing about what was applied.
func TestStrangeReplies(t *testing.T) {
	for _, reply := range []any{nil, int64(1), "OK", []any{}, []any{int64(1)}, []any{int64(1), int64(2), int64(3)}, []any{"x", nil}, []any{1.5, "-1"}} {
		cmd := redis.NewCmd(t.Context())
		cmd.SetVal(reply)
		c := call{from: 0, to: 2, cmd: cmd}
		c.reply, c.err = replyOf(cmd, nil)
		for _, a := range answersOf(c) {
			if !errors.Is(a.Err, store.ErrMaybeApplied) || a.Total != 0 {
				t.Errorf("reply %#v: %+v", reply, a)
			}
		}
	}
}
