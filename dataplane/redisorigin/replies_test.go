package redisorigin

import (
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
)

// The connection broke between two replies: what was answered is known, and only the
// rest may have been applied.
func TestAnsweredBeforeTheConnectionBroke(t *testing.T) {
	cmds := []*redis.Cmd{redis.NewCmd(t.Context()), redis.NewCmd(t.Context())}
	cmds[0].SetVal([]any{int64(7), errors.New("ERR value is not an integer"), "9007199254740993"})
	for _, cmd := range cmds {
		cmd.SetErr(io.EOF)
	}
	added := make([]dataplane.Added, 5)
	for i, c := range []call{{from: 0, to: 3, cmd: cmds[0]}, {from: 3, to: 5, cmd: cmds[1]}} {
		c.reply, c.err = replyOf(cmds[i], io.EOF)
		c.added(func(i int, a dataplane.Added) { added[i] = a })
	}
	if added[0] != (dataplane.Added{Total: 7}) || added[2] != (dataplane.Added{Total: 9007199254740993}) {
		t.Errorf("answered: %+v and %+v", added[0], added[2])
	}
	if added[1].Err == nil || errors.Is(added[1].Err, dataplane.ErrMaybeApplied) {
		t.Errorf("answered with an error: %+v", added[1])
	}
	for _, a := range added[3:] {
		if !errors.Is(a.Err, dataplane.ErrMaybeApplied) || !errors.Is(a.Err, io.EOF) {
			t.Errorf("not answered: %+v", a)
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
		told := 0
		c.added(func(_ int, a dataplane.Added) {
			told++
			if !errors.Is(a.Err, dataplane.ErrMaybeApplied) || a.Total != 0 {
				t.Errorf("reply %#v: %+v", reply, a)
			}
		})
		if told != 2 {
			t.Errorf("reply %#v: %d answers for 2 cells", reply, told)
		}
	}
}
