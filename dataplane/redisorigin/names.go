package redisorigin

import (
	"context"
	"fmt"
	"time"
)

// nameKept is how long a process stays listed under a node's name after its last Announce.
const nameKept = time.Minute

// namesMax bounds the number of processes that Announce returns.
const namesMax = 16

// luaAnnounce takes the process, for how many milliseconds to list it, and how many others to return. It answers with
// the processes and the time of each last Announce, in Unix milliseconds of the server's clock.
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

// Announce lists a process under a node's name. It returns the other processes of that name, each
// with the time of its last Announce, in Unix milliseconds of the server's clock. A process that
// ended without Withdraw stays listed for a minute. So another process is alive only if its time
// grows between two calls. The list is at the first partition; while that does not answer, Announce
// returns an error.
func (h *Origin) Announce(ctx context.Context, node, process string) (others map[string]int64, err error) {
	s := h.shards[0]
	reply, err := s.eval(ctx, announceScript, []string{s.nameKey(node)}, process, nameKept.Milliseconds(),
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

// Withdraw removes a process from the list of a node's name.
func (h *Origin) Withdraw(ctx context.Context, node, process string) error {
	s := h.shards[0]
	if err := s.eval(ctx, withdrawScript, []string{s.nameKey(node)}, process).Err(); err != nil {
		return fmt.Errorf("redisorigin: withdraw %q at %s: %w", node, s.where, err)
	}
	return nil
}

func (s *shard) nameKey(node string) string { return s.buckets[0].heldHead + "name:" + node }
