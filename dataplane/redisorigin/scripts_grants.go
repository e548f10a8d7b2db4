package redisorigin

var grantsScript = lua(luaEpoch, luaGrants)

// The grants of a key are in two places, so that no call looks at all leases by ID: a hash has of each node what it
// holds, until when, the number of the call that stated it, and until when the node counts as refused; a sorted set has
// the leases, by when they end. The hash has until when leases count as refused, too, as of a node "ids" that holds
// nothing.
//
// A bucket's birth is the epoch that it belongs to and when that was first seen here. A bucket without a birth is
// recovering, because nothing shows how long ago its epoch began.
//
// luaGrants takes the keys of the birth, and the nodes and the leases of each ask; node, number, and for how long
// an owner counts as refused and a node that holds nothing is remembered; for each ask lease, limit, have, want, spare
// and time to live. It answers with a state (0; 1: recovering; 2: late; 3: junk), held, others, starved and retry in
// milliseconds of each. Of junk, held is 0 if the nodes are, and 1 if the leases are.
const luaGrants = `
local function text(n) return string.format('%.0f', n) end
local of, since = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (%d+)$')
if of ~= e then
	since = now
	redis.call('SET', KEYS[2], e .. ' ' .. text(now))
end

-- look removes what has ended. It returns what an owner holds and its number, what all others hold, whether one of them
-- is refused, when the first of theirs ends, and the last end of other nodes. If one of the two keys is junk, it
-- returns nil and which one: 0 for nodes, 1 for leases.
local function look(nodes, leases, node, lease)
	local all = redis.pcall('HGETALL', nodes)
	if all.err then return nil, 0 end
	local held, last, others, starved, first, ends = 0, 0, 0, 0, 0, 0
	for i = 1, #all, 2 do
		local slots, at, n, refused = string.match(all[i+1], '^(%d+) (%d+) (%d+) (%d+)$')
		slots, at, n, refused = tonumber(slots), tonumber(at), tonumber(n), tonumber(refused)
		if not slots then return nil, 0 end
		if at <= now then redis.call('HDEL', nodes, all[i])
		elseif all[i] == node then held, last = slots, n
		else
			others, ends = others + slots, math.max(ends, at)
			if refused > now then starved = 1 end
			if slots > 0 and (first == 0 or at < first) then first = at end
		end
	end
	local gone = redis.pcall('ZREMRANGEBYSCORE', leases, '-inf', text(now))
	if type(gone) == 'table' then return nil, 1 end
	others = others + redis.call('ZCARD', leases)
	local ending = redis.call('ZRANGE', leases, 0, 1, 'WITHSCORES')
	for i = 1, #ending, 2 do
		local at = tonumber(ending[i+1])
		if ending[i] ~= lease and (first == 0 or at < first) then first = at end
	end
	return held, last, others, starved, first, ends
end

-- put stores what a node holds. The hash expires with the last end in it.
local function put(nodes, node, slots, at, number, refused, ends)
	redis.call('HSET', nodes, node, text(slots) .. ' ' .. text(at) .. ' ' .. text(number) .. ' ' .. text(refused))
	redis.call('PEXPIREAT', nodes, text(math.max(ends, at)))
end

local number, starves, kept = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
for i = 3, #KEYS, 2 do
	local nodes, leases, j, n = KEYS[i], KEYS[i+1], 3 * i - 3, #out
	local lease, limit, have, want = ARGV[j], tonumber(ARGV[j+1]), tonumber(ARGV[j+2]), tonumber(ARGV[j+3])
	local spare, ttl = tonumber(ARGV[j+4]), tonumber(ARGV[j+5])
	local node = lease == '' and ARGV[2] or 'ids'
	local mine, last, others, starved, first, ends = look(nodes, leases, node, lease)
	local was = mine and lease ~= '' and redis.call('ZSCORE', leases, lease)
	local state, held, retry = 0, 0, 0
	if was then
		mine, others = 1, others - 1
		if have + want > 0 then have, want = 1, 0 end
	end
	if not mine then state, held, others, starved = 3, last, 0, 0
	else
		if first > 0 then retry = first - now end
		if lease == '' and number < last then state = 2
		elseif lease == '' and number == last then held = mine
		else
			local refused, recovering = 0, since + ttl - now
			if recovering > 0 then
				held = have
				if want > 0 then state, retry = 1, recovering end
			else
				local keep = math.min(have, mine)
				local need, room = have - keep + want, math.max(0, limit - others - keep)
				local granted = math.min(need, room)
				held = keep + granted
				if starved == 0 then held = held + math.min(spare, math.floor((room - granted) / 2)) end
				if granted < need and want > 0 then refused = now + starves end
			end
			local at = now + ttl
			if lease == '' then
				if held == 0 then at = now + math.min(ttl, kept) end
				put(nodes, node, held, at, number, refused, ends)
			else
				if held == 1 then redis.call('ZADD', leases, text(math.max(at, tonumber(was or 0))), lease)
				elseif was then redis.call('ZREM', leases, lease) end
				local final = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')[2]
				if final then redis.call('PEXPIREAT', leases, final) end
				if refused > 0 then put(nodes, node, 0, refused, 0, refused, ends) end
			end
		end
	end
	out[n+1], out[n+2], out[n+3], out[n+4], out[n+5] = state, held, others, starved, retry
end
return out
`
