// Package rewind lets time pass on a Redis server, for tests that compare a server with a model whose clock a test
// moves. A server's own clock can't be moved, so its data moves instead.
package rewind

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Counts moves the cells, changes and expiries of an origin's server back by d, as if d had passed. The origin has the
// default prefix and isn't on a Cluster. d must be a multiple of the window of each cell: a cell of sequence n
// afterwards has the name of sequence n - d/window. Keys whose time to live is at most d are deleted.
func Counts(ctx context.Context, raw *redis.Client, d time.Duration) error {
	if err := raw.Eval(ctx, countsScript, nil, d.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("rewind by %v: %w", d, err)
	}
	return nil
}

const countsScript = `
local d, cells = tonumber(ARGV[1]), {}
for _, key in ipairs(redis.call('KEYS', '*')) do
	local left = redis.call('PTTL', key)
	if left >= 0 then redis.call('PEXPIRE', key, math.max(left - d, -1)) end
	local head, ms, n = string.match(key, '^(weir:{origin}:%a+:{.-:(%d+)}:)(%-?%d+)$')
	if head and redis.call('EXISTS', key) == 1 then cells[#cells + 1] = {key, head, d / tonumber(ms), tonumber(n)} end
end
table.sort(cells, function(a, b) return a[4] < b[4] end)
local names = {}
for _, c in ipairs(cells) do
	local name = c[2] .. string.format('%.0f', c[4] - c[3])
	redis.call('RENAME', c[1], name)
	names[c[1]] = name
end
local changes = redis.call('ZRANGE', 'weir:{origin}:changes', 0, -1, 'WITHSCORES')
redis.call('DEL', 'weir:{origin}:changes')
for i = 1, #changes, 2 do
	if names[changes[i]] then
		redis.call('ZADD', 'weir:{origin}:changes', string.format('%.0f', changes[i+1] - d), names[changes[i]])
	end
end
return redis.status_reply('OK')`
