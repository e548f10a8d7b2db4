package redisorigin

import (
	"context"
	"fmt"
	"time"
)

// nameKept is how long a process is listed under a node's name after it announced itself last.
const nameKept = time.Minute

// namesMax is how many processes of one name Announce returns.
const namesMax = 16

// luaAnnounce takes the process, how many milliseconds it is listed, and how many others to return. It answers with the
// processes and when each of them announced itself last, in Unix milliseconds by the server's clock.
const luaAnnounce = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[2]))
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZRANGE', KEYS[1], 0, ARGV[3], 'WITHSCORES')
`

const luaWithdraw = `return redis.call('ZREM', KEYS[1], ARGV[1])`

var (
	announceScript = lua(luaAnnounce)
	withdrawScript = lua(luaWithdraw)
)

// Announce lists a process under a node's name. It returns when the other processes of that name announced themselves
// last, by process, in Unix milliseconds of the server's clock. A process that ended without Withdraw stays listed for
// a minute, so another one lives only if its time grows between two calls. Processes are listed at the first partition
// alone: while it does not answer, nothing is known.
func (h *Origin) Announce(ctx context.Context, node, process string) (others map[string]int64, err error) {
	s := h.shards[0]
	reply, err := s.client.Eval(ctx, announceScript, []string{s.nameKey(node)}, process, nameKept.Milliseconds(),
		namesMax-1).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("redisorigin: announce %q at %s: %w", node, s.where, err)
	}
	others = make(map[string]int64)
	for i := 0; i+1 < len(reply); i += 2 {
		at, ok := parseCount(reply[i+1])
		if !ok {
			return nil, fmt.Errorf("redisorigin: announce %q at %s: %w", node, s.where, errStrangeReply)
		}
		if reply[i] != process {
			others[reply[i]] = at
		}
	}
	return others, nil
}

// Withdraw takes a process off the list of a node's name.
func (h *Origin) Withdraw(ctx context.Context, node, process string) error {
	s := h.shards[0]
	if err := s.client.Eval(ctx, withdrawScript, []string{s.nameKey(node)}, process).Err(); err != nil {
		return fmt.Errorf("redisorigin: withdraw %q at %s: %w", node, s.where, err)
	}
	return nil
}

func (s *shard) nameKey(node string) string { return s.buckets[0].heldHead + "name:" + node }
