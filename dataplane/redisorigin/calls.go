package redisorigin

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// callKeysMax bounds the keys of one command, and with them how long a server can do
// nothing else: under 1 ms for increments, half as long again for claims.
const callKeysMax = 500

// shard is one partition: what all calls that concern it go through.
type shard struct {
	*layout
	name    string // of the partition; "" for the only one
	where   string // the name and the address, for errors
	client  redis.UniversalClient
	cluster bool // keys of one command must share a slot
}

// failed says what was attempted, on how many cells, and where.
func (s *shard) failed(what string, cells int, err error) error {
	return fmt.Errorf("redisorigin: %s %d cells at %s: %w", what, cells, s.where, err)
}

func (s *shard) read(ctx context.Context, cells []window.Cell, totals []int64) error {
	if err := ctx.Err(); err != nil {
		return s.failed("read", len(cells), err)
	}
	keys := make([]string, len(cells))
	for i, c := range cells {
		keys[i] = s.keys.key(c)
	}
	values, err := s.get(ctx, keys)
	if err != nil {
		return s.failed("read", len(cells), err)
	}
	for i, v := range values {
		if v != nil {
			totals[i] = s.count(keys[i], v)
		}
	}
	return nil
}

func (s *shard) add(ctx context.Context, adds []store.Add, added []store.Added) {
	s.send(ctx, "add to", addScript, len(adds),
		func(i int) (*window.Cell, int64) { return &adds[i].Cell, adds[i].Cost },
		func(args []any, i int, expiresAtMs int64) []any { return append(args, adds[i].Cost, expiresAtMs) },
		func(i int, reply any) { added[i] = addedOf(reply) },
		func(i int, err error) { added[i] = store.Added{Err: err} })
}

func (s *shard) claim(ctx context.Context, claims []store.Claim, claimed []store.Claimed) {
	s.send(ctx, "claim from", claimScript, len(claims),
		func(i int) (*window.Cell, int64) { return &claims[i].Cell, claims[i].Cost },
		func(args []any, i int, expiresAtMs int64) []any {
			return append(args, claims[i].Cost, roomFor(claims[i]), expiresAtMs)
		},
		func(i int, reply any) { claimed[i] = claimedOf(reply) },
		func(i int, err error) { claimed[i] = store.Claimed{Err: err} })
}

// roomFor is the largest total that a claim's cost can be added to, -1 if there is
// none: here, because Lua cannot subtract such numbers exactly.
func roomFor(c store.Claim) int64 {
	if c.AtMost < c.Cost {
		return -1
	}
	return c.AtMost - c.Cost
}

func (s *shard) raise(ctx context.Context, totals []store.Add) error {
	if err := ctx.Err(); err != nil {
		return s.failed("raise", len(totals), err)
	}
	calls := s.eval(ctx, raiseScript, len(totals),
		func(i int) *window.Cell { return &totals[i].Cell },
		func(args []any, i int, expiresAtMs int64) []any { return append(args, totals[i].Cost, expiresAtMs) })
	var errs []error
	for _, c := range calls {
		if c.err != nil {
			errs = append(errs, s.failed("raise", c.to-c.from, c.err))
		}
	}
	return errors.Join(errs...)
}

// send runs a script that increments: what may be sent is, and each cell is told how
// it went, by its part of the reply or by an error.
func (s *shard) send(ctx context.Context, what, script string, n int, ask func(i int) (*window.Cell, int64),
	args func(args []any, i int, expiresAtMs int64) []any, answer func(i int, reply any), fail func(i int, err error)) {
	if err := ctx.Err(); err != nil {
		for i := range n {
			fail(i, s.failed(what, n, err))
		}
		return
	}
	places := make([]int, 0, n)
	for i := range n {
		if c, cost := ask(i); cost <= 0 {
			fail(i, fmt.Errorf("redisorigin: %s %v: cost is %d, want > 0", what, *c, cost))
			continue
		}
		places = append(places, i)
	}
	calls := s.eval(ctx, script, len(places),
		func(i int) *window.Cell { c, _ := ask(places[i]); return c },
		func(list []any, i int, expiresAtMs int64) []any { return args(list, places[i], expiresAtMs) })
	for _, c := range calls {
		replies, err := c.replies()
		if err != nil {
			err = sendError(s.failed(what, c.to-c.from, err))
		}
		for i := c.from; i < c.to; i++ {
			if err != nil {
				fail(places[i], err)
			} else {
				answer(places[i], replies[i-c.from])
			}
		}
	}
}

// call is one command for the cells from..to of what its caller was given, with its
// reply or its error.
type call struct {
	from, to int
	cmd      *redis.Cmd
	reply    any
	err      error
}

// replies are the call's, one for each cell.
func (c call) replies() ([]any, error) {
	if c.err != nil {
		return nil, c.err
	}
	list, _ := c.reply.([]any)
	if len(list) != c.to-c.from {
		return nil, fmt.Errorf("the reply is %.100q", fmt.Sprint(c.reply))
	}
	return list, nil
}

// eval runs a script over n cells, in one round trip. Each call has its own fate.
func (s *shard) eval(ctx context.Context, script string, n int, cell func(i int) *window.Cell,
	args func(args []any, i int, expiresAtMs int64) []any) []call {
	if n == 0 {
		return nil
	}
	var calls []call
	pipe := s.client.Pipeline()
	for from := 0; from < n; {
		to := s.together(n, from, cell)
		keys := make([]string, 0, to-from)
		list := make([]any, 0, 3*(to-from))
		for i := from; i < to; i++ {
			c := *cell(i)
			key := s.keys.key(c)
			keys = append(keys, key)
			list = args(list, i, s.expiresAtMs(c, key))
		}
		calls = append(calls, call{from: from, to: to, cmd: pipe.Eval(ctx, script, keys, list...)})
		from = to
	}
	_, err := pipe.Exec(ctx)
	for i := range calls {
		calls[i].reply, calls[i].err = replyOf(calls[i].cmd, err)
	}
	return calls
}

// together is the end of the run of cells from `from` on that one command may name: on
// a Cluster, those of one slot.
func (s *shard) together(n, from int, cell func(i int) *window.Cell) (to int) {
	to = from + 1
	for to < n && to-from < callKeysMax && (!s.cluster || cell(to).Key == cell(from).Key) {
		to++
	}
	return to
}

// get is the values of keys, nil where there is none, in one round trip.
func (s *shard) get(ctx context.Context, keys []string) ([]any, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if s.cluster {
		return s.getEach(ctx, keys)
	}
	pipe := s.client.Pipeline()
	var cmds []*redis.SliceCmd
	for from := 0; from < len(keys); from += callKeysMax {
		cmds = append(cmds, pipe.MGet(ctx, keys[from:min(from+callKeysMax, len(keys))]...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	values := make([]any, 0, len(keys))
	for _, cmd := range cmds {
		values = append(values, cmd.Val()...)
	}
	if len(values) != len(keys) {
		return nil, fmt.Errorf("%d values for %d keys", len(values), len(keys))
	}
	return values, nil
}

// getEach asks for each key by itself, so that the client can send each to its node.
func (s *shard) getEach(ctx context.Context, keys []string) ([]any, error) {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.Get(ctx, key)
	}
	// The pipeline has the first error of a command; where no command has one, it
	// failed as a whole.
	_, failed := pipe.Exec(ctx)
	values := make([]any, len(keys))
	for i, cmd := range cmds {
		switch err := cmd.Err(); {
		case err == nil:
			values[i] = cmd.Val()
			continue
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			values[i] = "" // no count, as a server that is asked for many says
		case !errors.Is(err, redis.Nil):
			return nil, err
		}
		failed = nil
	}
	return values, failed
}
