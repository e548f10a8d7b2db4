package redisorigin

var grantsScript = lua(luaClock, luaEpoch, luaGrants)

// The grants of a key are in two places, so that no call looks at all leases by ID. A hash has for each node its slots,
// until when, the number of the call that stated them, and until when the node counts as refused. A sorted set has the
// leases, by end. The hash also has until when leases count as refused, under a node "ids" that holds nothing.
//
// A bucket's birth is its epoch and the time at which that epoch was first seen here. A bucket without a birth is
// recovering, because nothing shows how long ago its epoch began.
//
// All times are luaClock's steady time.
//
// luaGrants takes the keys of the birth, and the nodes and the leases of each ask; node, number, and for how long an
// owner counts as refused and a node that holds nothing is kept; for each ask lease, limit, have, want, spare and time
// to live. It answers with a state (0; 1: recovering; 2: late; 3: junk), held, others, starved and retry in
// milliseconds of each. In state junk, held is 0 if the nodes' hash is junk, and 1 if the leases are.
const luaGrants = `
local function text(n) return string.format('%.0f', n) end
local of, since = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (%d+)$')
if of ~= e then
	since = steady
	redis.call('SET', KEYS[2], e .. ' ' .. text(steady))
end

-- look removes slots that have ended. It returns an owner's slots and its number, the slots of all others, whether any
-- of the others is refused, the first end of their slots, and the last end of other nodes' slots. If a key is junk, it
-- returns nil and 0 for nodes, or 1 for leases.
local function look(nodes, leases, node, lease)
	local all = redis.pcall('HGETALL', nodes)
	if all.err then return nil, 0 end
	local held, last, others, starved, first, ends = 0, 0, 0, 0, 0, 0
	for i = 1, #all, 2 do
		local slots, at, n, refused = string.match(all[i+1], '^(%d+) (%d+) (%d+) (%d+)$')
		slots, at, n, refused = tonumber(slots), tonumber(at), tonumber(n), tonumber(refused)
		if not slots then return nil, 0 end
		if at <= steady then redis.call('HDEL', nodes, all[i])
		elseif all[i] == node then held, last = slots, n
		else
			others, ends = others + slots, math.max(ends, at)
			if refused > steady then starved = 1 end
			if slots > 0 and (first == 0 or at < first) then first = at end
		end
	end
	local gone = redis.pcall('ZREMRANGEBYSCORE', leases, '-inf', text(steady))
	if type(gone) == 'table' then return nil, 1 end
	others = others + redis.call('ZCARD', leases)
	local ending = redis.call('ZRANGE', leases, 0, 1, 'WITHSCORES')
	for i = 1, #ending, 2 do
		local at = tonumber(ending[i+1])
		if ending[i] ~= lease and (first == 0 or at < first) then first = at end
	end
	return held, last, others, starved, first, ends
end

-- put stores a node's slots. The hash expires with the last end in it.
local function put(nodes, node, slots, at, number, refused, ends)
	redis.call('HSET', nodes, node, text(slots) .. ' ' .. text(at) .. ' ' .. text(number) .. ' ' .. text(refused))
	redis.call('PEXPIREAT', nodes, text(math.max(ends, at) - back))
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
		if first > 0 then retry = first - steady end
		if lease == '' and number < last then state = 2
		elseif lease == '' and number == last then held = mine
		else
			local refused, recovering = 0, since + ttl - steady
			if recovering > 0 then
				held = have
				if want > 0 then state, retry = 1, recovering end
			else
				local keep = math.min(have, mine)
				local need, room = have - keep + want, math.max(0, limit - others - keep)
				local granted = math.min(need, room)
				held = keep + granted
				if starved == 0 then held = held + math.min(spare, math.floor((room - granted) / 2)) end
				if granted < need and want > 0 then refused = steady + starves end
			end
			local at = steady + ttl
			if lease == '' then
				if held == 0 then at = steady + math.min(ttl, kept) end
				put(nodes, node, held, at, number, refused, ends)
			else
				if held == 1 then redis.call('ZADD', leases, text(math.max(at, tonumber(was or 0))), lease)
				elseif was then redis.call('ZREM', leases, lease) end
				local final = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')[2]
				if final then redis.call('PEXPIREAT', leases, text(final - back)) end
				if refused > 0 then put(nodes, node, 0, refused, 0, refused, ends) end
			end
		end
	end
	out[n+1], out[n+2], out[n+3], out[n+4], out[n+5] = state, held, others, starved, retry
end
return out
`
