package redisorigin

// The scripts for settings and heartbeats. Their keys belong to a shard's first bucket.
//
// The copy of the settings is a hash: v its version, d the document, n how many nodes live, l for how many milliseconds
// its trial was good for, at from when on in Unix milliseconds by the server's clock, plus the sum of its steps back.
//
// Heartbeats are a sorted set of node ids by when they came, in Unix microseconds by the server's clock but never the
// same twice, and a hash with the document of each (b and the node's id), its top keys (t and its id) and its order (o
// and its id): when its process started, when it was sent, and 1 if it is the process's last heartbeat.
var (
	settingsScript       = lua(luaClock, luaSettings)
	storeSettingsScript  = lua(luaClock, luaStoreSettings)
	saveHeartbeatsScript = lua(luaHeartbeats, luaSaveHeartbeats)
	heartbeatsScript     = lua(luaHeartbeats, luaReadHeartbeats)
	storedScript         = lua(luaHeartbeats, luaStored)
)

const (
	// luaSettings takes the reader's version, how long a document may be, and the greatest age in milliseconds. It answers
	// with the stored version ("" for none), the document if its version differs and it is not too long, its length, how
	// many nodes live, for how many milliseconds a trial was good, and the document's age in milliseconds. The age is the
	// greatest age if the stored time is no time, or in the future.
	luaSettings = `
local v = redis.call('HMGET', KEYS[1], 'v', 'n', 'at', 'l')
if not v[1] then return {'', '', 0, 0, 0, 0} end
local most = tonumber(ARGV[3])
local age = steady - (tonumber(v[3]) or 0)
if not (age >= -60000 and age < most) then age = most end
local nodes = tonumber(v[2]) or 0
if not (nodes >= 0 and nodes <= 1000000) then nodes = 0 end
local left = tonumber(v[4]) or 0
if not (left >= 0 and left <= most) then left = 0 end
local d, long = '', redis.call('HSTRLEN', KEYS[1], 'd')
if v[1] ~= ARGV[1] and long <= tonumber(ARGV[2]) then d = redis.call('HMGET', KEYS[1], 'd')[1] or '' end
return {v[1], d, long, nodes, left, age}
`

	// luaStoreSettings takes the relay, version, nodes, how many milliseconds to keep it, for how many a trial is good,
	// from when on in Unix milliseconds (0: now) and the document, which can be left out if the server may have it. It
	// answers with 0 if the server does not have it, and with -1 if the relay does not have the lease. The first write
	// needs no memory, so that a full server takes operators' changes.
	luaStoreSettings = `
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
if not ARGV[7] and redis.call('HMGET', KEYS[1], 'v')[1] ~= ARGV[2] then return 0 end
local at = tonumber(ARGV[6])
if at == 0 or at > now then at = now end
local ends = string.format('%.0f', now + ARGV[4])
redis.call('PEXPIREAT', KEYS[1], ends)
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'n', ARGV[3], 'l', ARGV[5], 'at', string.format('%.0f', at + back))
if ARGV[7] then redis.call('HSET', KEYS[1], 'd', ARGV[7]) end
redis.call('PEXPIREAT', KEYS[1], ends)
return 1
`

	// luaHeartbeats drops heartbeats that have waited for too long or lie in the future, some with each call.
	luaHeartbeats = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function drop(id)
	redis.call('ZREM', KEYS[1], id)
	redis.call('HDEL', KEYS[2], 'b' .. id, 't' .. id, 'o' .. id)
end
local function prune(keep)
	local old = redis.call('ZRANGE', KEYS[1], 0, 99, 'WITHSCORES')
	for i = 1, #old, 2 do
		if tonumber(old[i+1]) < now - keep then drop(old[i]) end
	end
	local future = string.format('(%.0f', now + keep)
	for _, id in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', future, 'LIMIT', 0, 100)) do drop(id) end
end
`

	// luaSaveHeartbeats takes how many nodes' heartbeats to keep and for how many microseconds; id, document, top keys and
	// order of each. It answers with the number of heartbeats that had room. A heartbeat that its process sent before the
	// kept heartbeat changes nothing: see heartbeat.Heartbeat.Precedes.
	luaSaveHeartbeats = `
local function precedes(order, kept)
	local started, sent, last = string.match(order, '(%d+) (%d+) (%d)')
	local keptStarted, keptSent, keptLast = string.match(kept or '', '(%d+) (%d+) (%d)')
	if started ~= keptStarted then return false end
	if last ~= keptLast then return keptLast == '1' end
	return tonumber(sent) < tonumber(keptSent)
end
prune(tonumber(ARGV[2]))
local latest = string.format('%.0f', now + ARGV[2])
local last = redis.call('ZREVRANGEBYSCORE', KEYS[1], latest, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local mark = math.max(now, (tonumber(last) or 0) + 1)
local kept = 0
for i = 3, #ARGV, 4 do
	local id = ARGV[i]
	if precedes(ARGV[i+3], redis.call('HMGET', KEYS[2], 'o' .. id)[1]) then kept = kept + 1
	elseif redis.call('ZSCORE', KEYS[1], id) or redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[1]) then
		redis.call('ZADD', KEYS[1], string.format('%.0f', mark), id)
		redis.call('HSET', KEYS[2], 'b' .. id, ARGV[i+1], 'o' .. id, ARGV[i+3])
		if ARGV[i+2] ~= '' then redis.call('HSET', KEYS[2], 't' .. id, ARGV[i+2]) end
		mark, kept = mark + 1, kept + 1
	end
end
for i = 1, 2 do redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', math.floor((now + ARGV[2]) / 1000))) end
return kept
`

	// luaReadHeartbeats takes the most heartbeats to return, for how many microseconds they are kept, and how long a
	// heartbeat may be. It answers with id, mark, age in microseconds, document and top keys of each; both are empty if
	// the heartbeat is too long.
	luaReadHeartbeats = `
prune(tonumber(ARGV[2]))
local out = {}
local ids = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
for i = 1, #ids, 2 do
	local v, b, t = {}, 'b' .. ids[i], 't' .. ids[i]
	if redis.call('HSTRLEN', KEYS[2], b) + redis.call('HSTRLEN', KEYS[2], t) <= tonumber(ARGV[3]) then
		v = redis.call('HMGET', KEYS[2], b, t)
	end
	local n = #out
	local age = string.format('%.0f', math.max(0, now - tonumber(ids[i+1])))
	out[n+1], out[n+2], out[n+3], out[n+4], out[n+5] = ids[i], ids[i+1], age, v[1] or '', v[2] or ''
end
return out
`

	// luaStored takes id and mark of each.
	luaStored = `
local n = 0
for i = 1, #ARGV, 2 do
	if redis.call('ZSCORE', KEYS[1], ARGV[i]) == ARGV[i+1] then
		drop(ARGV[i])
		n = n + 1
	end
end
return n
`
)
