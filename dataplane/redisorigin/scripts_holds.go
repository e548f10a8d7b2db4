package redisorigin

var (
	holdScript = lua(luaRecord, luaEpoch, luaPut, luaCarried, luaHold)
	noteScript = lua(luaEpoch, luaNote)
)

// The holds of a cell are a hash:
//
//	c    what all of them count, those that have ended included
//	m    the largest c so far, which the cell's a has in it
//	=id  step, attempts, cost, after and end of one
//
// and a set of ids, by when they end, and then by when they are forgotten.
const (
	// luaCarried computes floor(n * uncovered / duration) for n up to 2^53 - 1 and uncovered <=
	// duration < 2^35. The product may need 88 bits, but Lua's numbers are exact up to 53. So the
	// script divides n first and splits uncovered in two parts. All intermediate results are
	// integers below 2^53, and math.fmod is exact.
	luaCarried = `
local function divide(n, by)
	local rest = math.fmod(n, by)
	return (n - rest) / by, rest
end
local function carried(n, uncovered, duration)
	local whole, rest = divide(n, duration)
	local low = math.fmod(uncovered, 262144)
	local high, left = divide(rest * ((uncovered - low) / 262144), duration)
	local a, ra = divide(left * 262144, duration)
	local b, rb = divide(rest * low, duration)
	return whole * uncovered + high * 262144 + a + b + divide(ra + rb, duration)
end
`

	// luaHold takes the key of the changes; for each word its cell, the cell before, and the holds and ends of both;
	// how long ended holds are known, how many a cell may have, and how many attempts a hold; for each word id, step,
	// attempt, undo, cost, after, time to live, limit, force, again, look, and of the cell end, duration and expiry. It
	// answers with granted, late, 1 if there are too many holds (2: it is another one), used, used before, region and
	// foreign of each, and last with why cells could not be written.
	luaHold = `
local KEEP, MOST, TRIES = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
-- text adds 0, since -0 is no integer to the server.
local function text(n) return string.format('%.0f', n + 0) end
local function state(holds)
	local v = redis.call('HMGET', holds, 'c', 'm')
	return num(v[1]) or 0, num(v[2]) or 0
end
local function hold(holds, id)
	local v = redis.call('HGET', holds, '=' .. id)
	if not v then return end
	local step, attempt, cost, after, ends = string.match(v, '^(%d+) ([%d,]+) (%d+) (%d+) (%d+)$')
	return tonumber(step), attempt, tonumber(cost), tonumber(after), tonumber(ends)
end
local function store(holds, ends, id, step, attempt, cost, after, at)
	redis.call('HSET', holds, '=' .. id, table.concat({text(step), attempt, text(cost), text(after), text(at)}, ' '))
	redis.call('ZADD', ends, text(at), id)
end
-- finish ends the holds whose time has come, and forgets those that ended long ago.
local function finish(holds, ends)
	for _, id in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', text(now))) do
		local step, attempt, cost, after, at = hold(holds, id)
		if step and cost ~= after then
			redis.call('HINCRBY', holds, 'c', text(after - cost))
			store(holds, ends, id, step, attempt, after, after, at)
		end
		if step and at + KEEP > now then redis.call('ZADD', ends, text(at + KEEP), id)
		else
			redis.call('HDEL', holds, '=' .. id)
			redis.call('ZREM', ends, id)
		end
	end
end
-- has tells whether an attempt is one of some, and without is all others.
local function has(by, attempt) return string.find(',' .. by .. ',', ',' .. attempt .. ',', 1, true) ~= nil end
local function without(by, attempt)
	local left = {}
	for other in string.gmatch(by, '%d+') do
		if other ~= attempt then left[#left+1] = other end
	end
	return table.concat(left, ',')
end
local function used(total, foreign, holds)
	local c, m = state(holds)
	return math.min(math.max(0, total - m) + c + foreign, MAX)
end
for w = 0, (#KEYS - 2) / 6 - 1 do
	local i, j, n = 6 * w + 3, 14 * w + 5, #out
	local key, before, holds, ends, holds2, ends2 = unpack(KEYS, i, i + 5)
	local id, step, attempt, undo = ARGV[j], tonumber(ARGV[j+1]), ARGV[j+2], ARGV[j+3] == '1'
	local cost, after, ttl, limit = tonumber(ARGV[j+4]), tonumber(ARGV[j+5]), tonumber(ARGV[j+6]), tonumber(ARGV[j+7])
	local force, again, looks = ARGV[j+8] == '1', ARGV[j+9] == '1', ARGV[j+10] == '1'
	local over, duration, at = tonumber(ARGV[j+11]), tonumber(ARGV[j+12]), tonumber(ARGV[j+13])
	local a, r, k, f, l, old = record(key)
	local b, br, bk, bf = record(before)
	if not b then b, br, bk, bf = 0, 0, 0, 0 end
	local granted, late, many = 1, 0, 0
	if not a then out[n+1], out[n+2], out[n+3], out[n+4], out[n+5], out[n+6], out[n+7] = 0, 0, 0, 0, 0, -1, 0
	else
		finish(holds, ends)
		finish(holds2, ends2)
		local was, by, counts, left, till = hold(holds, id)
		if was == 0 and step == 0 and counts == 0 and till <= now and not has(by, attempt) and not again then
			was, counts = nil, nil
		end
		local c, m = state(holds)
		local write, c2, m2 = false, c, m
		if at <= now then granted, late = 0, 1
		elseif undo then
			local others = was == 0 and has(by, attempt) and without(by, attempt)
			if others and others ~= '' then store(holds, ends, id, 0, others, counts, left, till)
			elseif others then
				redis.call('HINCRBY', holds, 'c', text(-counts))
				redis.call('HDEL', holds, '=' .. id)
				redis.call('ZREM', ends, id)
			end
		elseif was == 0 and step == 0 and counts ~= cost and not again then granted, many = 0, 2
		elseif was and step == 0 then
			if was > 0 or by ~= attempt then late = 1 end
			if was == 0 and not looks and not has(by, attempt) then
				local _, commas = string.gsub(by, ',', '')
				by = commas + 2 > TRIES and '0' or by .. ',' .. attempt
				store(holds, ends, id, 0, by, counts, left, till)
			end
		elseif was and step <= was or not was and step > 0 and not again then late = 1
		elseif not was and redis.call('ZCARD', ends) >= MOST then granted, many = 0, 1
		elseif step == 0 and not force and cost + used(region(a, r, k), f, holds) +
			carried(used(region(b, br, bk), bf, holds2), math.min(math.max(0, over - now), duration), duration) > limit then
			granted = 0
		elseif not looks then
			write, c2 = true, c + cost - (counts or 0)
			if again and not was then m2 = m2 + cost end
		end
		local grown = math.max(0, c2 - m2)
		local a2, l2 = math.min(a + grown, MAX), l
		if write and region(a2, r, k) > 0 then l2 = lower(l, limit) end
		if not put(key, old, text(at), a, r, k, l, a2, r, k, l2) then granted, late, a2, f = 0, 0, -3, 0
		elseif write then
			redis.call('HSET', holds, 'c', text(c2), 'm', text(m2 + grown))
			store(holds, ends, id, step, attempt, cost, after, now + ttl)
			redis.call('PEXPIREAT', holds, text(at))
			redis.call('PEXPIREAT', ends, text(at))
			if ttl == 0 then finish(holds, ends) end
		end
		out[n+1], out[n+2], out[n+3] = granted, late, many
		out[n+5] = used(region(b, br, bk), bf, holds2)
		if a2 < 0 then out[n+4], out[n+6], out[n+7] = 0, a2, 0
		else out[n+4], out[n+6], out[n+7] = used(region(a2, r, k), f, holds), region(a2, r, k), f end
	end
end
note(KEYS[2])
out[#out+1] = problem
return out
`

	// luaNote takes the note's key; its version, text and time to live, again. It answers with 1 if it is stored; version
	// and text of what is stored.
	luaNote = `
local v = redis.call('HMGET', KEYS[2], 'v', 't')
local is, text, version = tonumber(v[1] or 0), v[2] or '', tonumber(ARGV[2])
out[4] = 0
if version > 0 and (is == version - 1 or ARGV[5] == '1' and is < version) then
	redis.call('HSET', KEYS[2], 'v', ARGV[2], 't', ARGV[3])
	redis.call('PEXPIRE', KEYS[2], ARGV[4])
	is, text, out[4] = version, ARGV[3], 1
elseif version > 0 and is == version and text == ARGV[3] then out[4] = 1 end
out[5], out[6] = is, text
return out
`
)
