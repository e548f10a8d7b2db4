package redisorigin

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
)

// callKeysMax bounds the keys of one command, and with them how long a server can do
// nothing else: some 0.6 ms.
const callKeysMax = 500

// The scripts, sent whole each time: there is nothing to load first, and no server
// that has forgotten them. They take, for each key, a number and when the key expires
// (Unix ms). Numbers go in as text and, from 2^53 on, come out as text, since Lua's
// are float64.
//
// addScript's errors are values of single keys: once it has written, it does not
// fail as a whole. Where the expiry cannot be set (not permitted, say) it takes the
// increment back, so that no key is left without one.
//
// raiseScript may fail halfway, as it may be repeated.
const (
	addScript = `
local totals = {}
for i, key in ipairs(KEYS) do
	local cost = ARGV[2*i-1]
	local total = redis.pcall('INCRBY', key, cost)
	if type(total) == 'number' then
		local exact = total
		if total >= 9007199254740992 then exact = redis.pcall('GET', key) end
		local set = redis.pcall('PEXPIREAT', key, ARGV[2*i])
		if type(set) == 'table' then
			redis.pcall('DECRBY', key, cost)
			if redis.pcall('GET', key) == '0' then redis.pcall('DEL', key) end
			exact = set
		end
		total = exact
	end
	totals[i] = total
end
return totals`

	raiseScript = `
local function less(a, b) return #a < #b or #a == #b and a < b end
for i, key in ipairs(KEYS) do
	local count = ARGV[2*i-1]
	local stored = redis.pcall('GET', key)
	if type(stored) == 'table' and string.find(stored.err, 'WRONGTYPE', 1, true) then stored = '' end
	if type(stored) == 'table' then return stored end
	if not stored or not string.find(stored, '^[1-9]%d*$') or less('9223372036854775807', stored) then stored = '0' end
	if less(stored, count) then
		local set = redis.pcall('SET', key, count, 'PXAT', ARGV[2*i])
		if set.err then return set end
	end
end
return #KEYS`
)

// call is one command for the cells from..to of what its caller was given, with its
// reply or its error.
type call struct {
	from, to int
	cmd      *redis.Cmd
	reply    any
	err      error
}

// eval runs a script over all cells, in one round trip. Each call has its own fate.
func (o *Origin) eval(ctx context.Context, script string, adds []dataplane.Add) []call {
	if len(adds) == 0 {
		return nil
	}
	var calls []call
	pipe := o.client.Pipeline()
	for from := 0; from < len(adds); {
		to := o.together(adds, from)
		keys := make([]string, 0, to-from)
		args := make([]any, 0, 2*(to-from))
		for _, a := range adds[from:to] {
			key := o.keys.key(a.Cell)
			keys = append(keys, key)
			args = append(args, a.Cost, o.expiresAtMs(a.Cell, key))
		}
		calls = append(calls, call{from: from, to: to, cmd: pipe.Eval(ctx, script, keys, args...)})
		from = to
	}
	_, err := pipe.Exec(ctx)
	for i := range calls {
		calls[i].reply, calls[i].err = replyOf(calls[i].cmd, err)
	}
	return calls
}

// replyOf tells replies from errors as go-redis does not quite: a command that was
// answered before the connection broke has both, and one that was not sent because
// the server refused the connection (a wrong password, say) has neither, and only
// the pipeline has the error.
func replyOf(cmd *redis.Cmd, pipelineErr error) (any, error) {
	reply, err := cmd.Val(), cmd.Err()
	switch list, isList := reply.([]any); {
	case reply != nil && (!isList || len(list) > 0):
		return reply, nil
	case err != nil:
		return nil, err
	case pipelineErr != nil:
		return nil, pipelineErr
	}
	return nil, errNoReply
}

var errNoReply = errors.New("no reply")

// together is the end of the run of cells from `from` on that one command may name: on
// a Cluster, those of one slot.
func (o *Origin) together(adds []dataplane.Add, from int) (to int) {
	to = from + 1
	for to < len(adds) && to-from < callKeysMax && (!o.cluster || adds[to].Cell.Key == adds[from].Cell.Key) {
		to++
	}
	return to
}

// added tells each of the call's increments how it went.
func (c call) added(tell func(i int, a dataplane.Added)) {
	totals, _ := c.reply.([]any)
	err := c.err
	if err == nil && len(totals) != c.to-c.from {
		err = fmt.Errorf("the reply is %.100q", fmt.Sprint(c.reply))
	}
	if err != nil {
		err = addError(fmt.Errorf("redisorigin: add to %d cells: %w", c.to-c.from, err))
	}
	for i := c.from; i < c.to; i++ {
		if err != nil {
			tell(i, dataplane.Added{Err: err})
		} else {
			tell(i, addedOf(totals[i-c.from]))
		}
	}
}

// addedOf reads one answer of the add script.
func addedOf(v any) dataplane.Added {
	switch v := v.(type) {
	case int64:
		return dataplane.Added{Total: v}
	case string:
		if n, ok := parseCount(v); ok {
			return dataplane.Added{Total: n}
		}
	case error:
		return dataplane.Added{Err: fmt.Errorf("redisorigin: add: %w", v)}
	}
	return dataplane.Added{Err: fmt.Errorf("%w: redisorigin: add: the total is %q", dataplane.ErrMaybeApplied, fmt.Sprint(v))}
}

// get is the values of keys, nil where there is none, in one round trip.
func (o *Origin) get(ctx context.Context, keys []string) ([]any, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if o.cluster {
		return o.getEach(ctx, keys)
	}
	pipe := o.client.Pipeline()
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
func (o *Origin) getEach(ctx context.Context, keys []string) ([]any, error) {
	pipe := o.client.Pipeline()
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
