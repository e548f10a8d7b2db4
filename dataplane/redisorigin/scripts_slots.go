package redisorigin

var (
	slotsScript  = lua(luaEpoch, luaHolders, luaSlots)
	leasesScript = lua(luaEpoch, luaHolders, luaLeases)
)

// The slots of a key are a hash: of each node, what it holds, until when, the number of the call that said so, and
// until when the node counts as refused. Leases by id are a set of ids beside it, by when they end.
//
// A bucket's birth is the epoch that it belongs to and when that was first seen here. A bucket without one is just
// born: whether its epoch is as recent cannot be told.
const (
	// luaHolders takes the key of the birth second. look returns what a node holds of a key and its number, what all
	// others do, whether one of them is refused, when the first of theirs ends, and the last end of all nodes; nothing
	// of junk.
	luaHolders = `
local function text(n) return string.format('%.0f', n) end
local of, since = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (%d+)$')
if of ~= e then
	since = now
	redis.call('SET', KEYS[2], e .. ' ' .. text(now))
end
local function look(key, leases, node)
	local all = redis.pcall('HGETALL', key)
	if all.err then return end
	local mine, last, others, starved, first, ends = 0, 0, 0, 0, 0, 0
	for i = 1, #all, 2 do
		local slots, at, n, refused = string.match(all[i+1], '^(%d+) (%d+) (%d+) (%d+)$')
		slots, at, n, refused = tonumber(slots), tonumber(at), tonumber(n), tonumber(refused)
		if not slots then return end
		if at <= now then redis.call('HDEL', key, all[i])
		else
			ends = math.max(ends, at)
			if all[i] == node then mine, last = slots, n
			else
				others = others + slots
				if refused > now then starved = 1 end
				if slots > 0 and (first == 0 or at < first) then first = at end
			end
		end
	end
	redis.call('ZREMRANGEBYSCORE', leases, '-inf', text(now))
	local n = redis.call('ZCARD', leases)
	if n > 0 then
		others = others + n
		local at = tonumber(redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2])
		if first == 0 or at < first then first = at end
	end
	return mine, last, others, starved, first, ends
end
`

	// luaSlots takes the keys of the birth, and the slots and the leases of each key; node, number and for how long a
	// node counts as refused; for each key limit, have, want, spare and time to live. It answers with a state (0;
	// 1: recovering; 2: late; 3: not slots), held, others, starved and retry in milliseconds of each key.
	luaSlots = `
local node, number = ARGV[2], tonumber(ARGV[3])
for i = 3, #KEYS, 2 do
	local key, j, n = KEYS[i], 5 * (i - 1) / 2, #out
	local limit, have, want, spare = tonumber(ARGV[j]), tonumber(ARGV[j+1]), tonumber(ARGV[j+2]), tonumber(ARGV[j+3])
	local ttl = tonumber(ARGV[j+4])
	local mine, last, others, starved, first, ends = look(key, KEYS[i+1], node)
	local state, held, retry = 0, 0, 0
	if not mine then state, others, starved = 3, 0, 0
	else
		if first > 0 then retry = first - now end
		if number < last then state = 2
		elseif number == last then held = mine
		else
			local refused, recovering = 0, since + ttl - now
			held = math.min(have, mine)
			local need = have - held + want
			if recovering > 0 then
				held = have
				if want > 0 then state, retry = 1, recovering end
			else
				local room = math.max(0, limit - others - held)
				local granted = math.min(need, room)
				if starved == 0 then granted = granted + math.min(spare, math.floor((room - granted) / 2)) end
				held = held + granted
				if granted < need then refused = now + tonumber(ARGV[4]) end
			end
			redis.call('HSET', key, node, text(held) .. ' ' .. text(now + ttl) .. ' ' .. text(number) .. ' ' .. text(refused))
			redis.call('PEXPIREAT', key, text(math.max(ends, now + ttl)))
		end
	end
	out[n+1], out[n+2], out[n+3], out[n+4], out[n+5] = state, held, others, starved, retry
end
return out
`

	// luaLeases takes the keys of the birth, and the slots and the leases of each word; for how long a refusal asks nodes
	// for spare slots (as if it were one of a node "ids" which holds none); for each word id, verb (0: acquire,
	// 1: renew, 2: release), limit and time to live. It answers with a state, as luaSlots does, held, all that
	// is held and retry of each.
	luaLeases = `
for i = 3, #KEYS, 2 do
	local key, leases, j, n = KEYS[i], KEYS[i+1], 2 * i - 3, #out
	local id, verb, limit, ttl = ARGV[j], ARGV[j+1], tonumber(ARGV[j+2]), tonumber(ARGV[j+3])
	local mine, _, others, _, first, ends = look(key, leases, 'ids')
	local state, held, retry = 0, 0, 0
	if not mine then state, others = 3, 0
	else
		if first > 0 then retry = first - now end
		local is = redis.call('ZSCORE', leases, id)
		local recovering = since + ttl - now
		if verb == '2' then
			if redis.call('ZREM', leases, id) == 1 then others = others - 1 end
		elseif is or verb == '1' and recovering > 0 then held = 1
		elseif verb == '0' and recovering > 0 then state, retry = 1, recovering
		elseif verb == '0' and others < limit then held = 1
		elseif verb == '0' then
			local refused = now + tonumber(ARGV[2])
			redis.call('HSET', key, 'ids', '0 ' .. text(refused) .. ' 0 ' .. text(refused))
			redis.call('PEXPIREAT', key, text(math.max(ends, refused)))
		end
		if held == 1 then
			redis.call('ZADD', leases, text(math.max(now + ttl, tonumber(is or 0))), id)
			if not is then others = others + 1 end
			local last = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')[2]
			redis.call('PEXPIREAT', leases, last)
		end
	end
	out[n+1], out[n+2], out[n+3], out[n+4] = state, held, others, retry
end
return out
`
)
