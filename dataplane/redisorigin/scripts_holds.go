package redisorigin

var holdScript = lua(luaClock, luaRecord, luaHistory, luaEpoch, luaPut, luaCarried, luaHolds, luaReservation, luaHold)

// holdEndsMax is how many holds whose time has come a call ends in each of its cells. Further holds count as if they
// were open until a later call ends them.
const holdEndsMax = 200

// A cell with holds has a hash and two sorted sets, which expire with the cell:
//
//	holds   c       the sum of the holds' counts, including ended holds
//	        t       the part of c that tentative holds count
//	        m       the largest c - t - n so far, which is part of the cell's a
//	        n       the restored cost, which is part of the cell's k
//	        b       as the cell's b, when the hash was last changed
//	        =owner  amount, after, end and state of a hold (0: tentative, 1: open, 2: its time has come, 3: ended for
//	                good, 4: ended before it was stored)
//	open    the owners of open holds, by when they end
//	ended   the owners of holds that have ended, by when they are forgotten
//
// These sums may be above 2^53, where they are rounded as floating-point numbers are.
//
// A reservation's record is a hash too, and so that a promoted replica shows what it lacks, there is a number of calls
// for each stream:
//
//	record:ID     t  text            s  spent
//	              e  end             x  1 if it is settled
//	              b  the attempt that has settled it
//	              q  1 if a caller relies on it
//	              w  1 if it was withdrawn
//	calls:STREAM  how many calls of the stream were applied
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

	// luaHolds reads a cell with its holds, changes them in memory, and writes them. Only write and expire write.
	luaHolds = `
local KEEP, MOST, ONCE = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
-- text adds 0, because the server does not accept -0 as an integer.
local function text(n) return string.format('%.0f', n + 0) end
local function opens(h) return h and h.state < 2 and 1 or 0 end
local function counts(h)
	if not h then return 0 end
	return h.state < 2 and h.amount or h.after
end
local function tentative(h) return h and h.state == 0 and h.amount or 0 end
-- set replaces the hold of an owner.
local function set(cell, owner, h)
	local was = cell.by[owner]
	cell.c, cell.t = cell.c + counts(h) - counts(was), cell.t + tentative(h) - tentative(was)
	cell.open = cell.open + opens(h) - opens(was)
	cell.by[owner], cell.changed[owner] = h, true
end
-- find returns the hold of an owner, or nil if there is no hold or it is forgotten. It ends a hold whose time has come.
local function find(cell, owner)
	if cell.by[owner] == nil then
		local amount, after, ends, state =
			string.match(redis.call('HGET', cell.holds, '=' .. owner) or '', '^(%d+) (%d+) (%d+) (%d)$')
		cell.by[owner] = false
		if amount then
			local h = {amount = tonumber(amount), after = tonumber(after), ends = tonumber(ends), state = tonumber(state)}
			cell.by[owner] = h
			if h.state < 2 and h.ends <= steady then
				set(cell, owner, {amount = h.amount, after = h.after, ends = h.ends, state = 2})
			end
			if cell.by[owner].state > 1 and h.ends + KEEP <= steady then cell.by[owner] = false end
		end
	end
	return cell.by[owner] or nil
end
-- load reads the i-th cell. The cell's a is nil if its key holds junk.
local function load(i)
	local n, j = 4 * i + 1, 3 * i + 10
	local cell = {key = KEYS[n], holds = KEYS[n+1], opened = KEYS[n+2], ended = KEYS[n+3], by = {}, changed = {},
		over = tonumber(ARGV[j]), duration = tonumber(ARGV[j+1]), at = tonumber(ARGV[j+2])}
	cell.a, cell.r, cell.k, cell.f, cell.l, cell.old, cell.h = record(cell.key)
	if not cell.a then return cell end
	cell.a2, cell.l2, cell.divided = cell.a, cell.l, ''
	if #steps > 0 and not cell.old then
		if early(cell.key) then cell.at = 0 end
		local made = redis.call('HMGET', cell.holds, 'b', 'c')
		if made[2] and forgotten(cell.key, num(made[1]) or 0) then
			redis.call('DEL', cell.holds, cell.opened, cell.ended)
		end
	end
	local sums = redis.call('HMGET', cell.holds, 'c', 't', 'm', 'n')
	cell.c, cell.t = tonumber(sums[1]) or 0, tonumber(sums[2]) or 0
	cell.m, cell.n = tonumber(sums[3]) or 0, tonumber(sums[4]) or 0
	cell.open = redis.call('ZCARD', cell.opened)
	local due = redis.call('ZRANGEBYSCORE', cell.opened, '-inf', text(steady), 'LIMIT', 0, ONCE)
	for _, owner in ipairs(due) do
		cell.changed[owner] = true
		find(cell, owner)
	end
	cell.more = #due == ONCE
	return cell
end
-- expire gives each key an expiry. It deletes a key that would have none.
local function expire(at, keys)
	local ok = true
	for _, key in ipairs(keys) do
		if failed(redis.pcall('PEXPIREAT', key, text(at))) then
			ok = false
			if redis.call('PTTL', key) == -1 then redis.call('DEL', key) end
		end
	end
	if not ok then error(problem) end
end
-- write begins with a command that a full server accepts.
local function write(cell)
	local left, opened, ended, gone = {}, {}, {}, {}
	local fields = {'c', text(cell.c), 't', text(cell.t), 'm', text(cell.m), 'n', text(cell.n)}
	if back > 0 then fields[9], fields[10] = 'b', text(back) end
	for owner in pairs(cell.changed) do
		local h = cell.by[owner]
		left[#left+1] = owner
		if h then
			fields[#fields+1] = '=' .. owner
			fields[#fields+1] = table.concat({text(h.amount), text(h.after), text(h.ends), h.state}, ' ')
			local set = h.state < 2 and opened or ended
			set[#set+1] = text(h.state < 2 and h.ends or h.ends + KEEP)
			set[#set+1] = owner
		else gone[#gone+1] = '=' .. owner end
	end
	if #left == 0 and not cell.grown then return end
	if #left > 0 then
		redis.call('ZREM', cell.opened, unpack(left))
		redis.call('ZREM', cell.ended, unpack(left))
	end
	redis.call('HSET', cell.holds, unpack(fields))
	if #opened > 0 then redis.call('ZADD', cell.opened, unpack(opened)) end
	if #ended > 0 then redis.call('ZADD', cell.ended, unpack(ended)) end
	local old = redis.call('ZRANGEBYSCORE', cell.ended, '-inf', text(steady), 'LIMIT', 0, ONCE)
	local many = redis.call('ZCARD', cell.ended) - MOST
	if many > #old then old = redis.call('ZRANGE', cell.ended, 0, many - 1) end
	if #old > 0 then redis.call('ZREM', cell.ended, unpack(old)) end
	for _, owner in ipairs(old) do gone[#gone+1] = '=' .. owner end
	if #gone > 0 then redis.call('HDEL', cell.holds, unpack(gone)) end
	expire(cell.at, {cell.holds, cell.opened, cell.ended})
end
local function used(cell)
	if not cell or not cell.a then return 0 end
	return math.min(math.max(0, cell.a - cell.m) + math.max(cell.k - cell.n, cell.r) + cell.c + cell.f, MAX)
end
-- counted returns how much of the used cost of the cell before still counts by a precise window. The total may have
-- more than the used cost, of holds that ended: the groups that are gone may have such cost.
local function counted(cell, used)
	local g, n, m, d, s, marks = string.match(cell and cell.h or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) ?(.*)$')
	if not g then return used end
	local gone, steps = 0, math.floor((now - s - d) * m / d)
	for i = 1, #marks do
		if string.byte(marks, i) - 48 < steps then gone = gone + g end
	end
	local more = math.max(0, math.min(region(cell.a, cell.r, cell.k) + cell.f, MAX) - used)
	return math.max(0, used - math.max(0, gone - more))
end
`

	// luaReservation takes the record's kind (0: none, 1: new, 2: restored, 3: a change, 4: withdrawn), text, spent, time
	// to live, 1 if it is settled, and the attempt. It decides which record is stored after the call.
	luaReservation = `
local kind, words, spent, ttl, settles = ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11] == '1'
local attempt = settles and ARGV[12] or ''
local stored, another, asked, stores, took = nil, false, false, false, false
local function numbers(list)
	local all = {}
	for n in string.gmatch(list, '%d+') do all[#all+1] = tonumber(n) end
	return all
end
local function larger(a, b)
	a, b = numbers(a), numbers(b)
	for i = 1, #a do a[i] = text(math.max(a[i], b[i] or 0)) end
	return table.concat(a, ',')
end
if kind ~= '0' then
	local v = redis.call('HMGET', KEYS[4], 't', 's', 'e', 'x', 'q', 'b', 'w')
	if v[1] and (v[7] ~= '1' or v[1] == words and kind ~= '2') then
		stored = {t = v[1], s = v[2], e = tonumber(v[3]), x = v[4] == '1', q = v[5] == '1', b = v[6], w = v[7] == '1'}
	end
end
local r = stored
if stored then
	local own, open = stored.t == words, not stored.x and steady < stored.e
	if kind == '4' then stores = own and open and not stored.q
	else
		another = kind < '3' and not own
		asked = not stored.q and (kind == '3' or own == (kind == '2'))
		stores = (kind == '3' and open or kind == '2' and own and not stored.x) and
			(spent == '' or #numbers(spent) == #numbers(stored.s))
	end
	took = stores or kind == '1' and own and not stored.w or stored.x and attempt ~= '' and attempt == stored.b
else stores = kind ~= '0' and words ~= '' end
if stores then
	took = true
	local is = stored or {t = words, s = spent, e = steady, q = kind == '2'}
	r = {t = is.t, s = larger(is.s, spent), e = is.e, x = settles, q = is.q or asked, b = attempt, w = kind == '4'}
	if ttl > 0 then r.e = math.max(r.e, steady + ttl) end
end
`

	// luaHold takes the keys of the changes, of the stream's count and of the record (any if there is none), and for each
	// cell the keys of the cell, its holds, its open holds and its ended holds. Its arguments are:
	//
	//	epoch and number of After
	//	how long ended holds and records are kept, how many holds a cell may have, and how many a call ends
	//	the record, see luaReservation
	//	for each cell its end, its duration and when it expires
	//	for each hold: the places of its cell and the cell before (0: none), owner, amount, after, time to live, limit, as
	//	(0: state, 1: new, 2: forced), the epoch in which it is made (0: see store.Hold), 1 if it is optional, 1 if it is
	//	tentative, and for a precise window an empty history of its cell
	//
	// It answers with:
	//
	//	a state (0: applied, 1: behind, 2: a hold does not fit, 3: another record has the ID, 4: another epoch), and the
	//	stream's count
	//	in states 0, 2 and 3: text, spent, end, settled and changed of the record
	//	in states 0 and 2, of each hold: held, fits, 1 if there are too many, used, used before, region and foreign
	//
	// It makes all decisions before it writes anything.
	luaHold = `
local number = num(redis.call('GET', KEYS[3])) or 0
out[4], out[5] = 0, 0
if ARGV[2] == e and number < tonumber(ARGV[3]) then
	out[4], out[5] = 1, number
	return out
end
local first = 13 + 3 * (#KEYS - 4) / 4
for j = first, #ARGV, 12 do
	if ARGV[j+7] == '1' and ARGV[j+8] ~= '0' and ARGV[j+8] ~= e then
		out[4] = 4
		return out
	end
end
local cells, holds, refused = {}, {}, another
for i = 1, (#KEYS - 4) / 4 do cells[i] = load(i) end
for j = first, #ARGV, 12 do
	local h = {cell = cells[tonumber(ARGV[j])], owner = ARGV[j+2], limit = tonumber(ARGV[j+6]),
		held = 0, fits = 0, many = 0, open = 0, used = 0, before = 0}
	local amount, after, ttl, as = tonumber(ARGV[j+3]), tonumber(ARGV[j+4]), tonumber(ARGV[j+5]), ARGV[j+7]
	local cell, before, new = h.cell, cells[tonumber(ARGV[j+1])], as == '1'
	local ok, expired, was = true, cell.at <= now, nil
	local restores, precise = as == '2' and ARGV[j+8] ~= '0' and ARGV[j+8] ~= e, ARGV[j+11]
	holds[#holds+1] = h
	if cell.a then
		cell.stated = not expired
		was = find(cell, h.owner)
		h.open = cell.open
		h.used, h.before = math.max(0, used(cell) - counts(was)), used(before)
		if precise ~= '' then
			h.before = counted(before, h.before)
			if cell.divided == '' then cell.divided = precise end
		end
		if was and was.state < 3 and not expired then h.held = 1 end
		if was and was.state == 4 and as == '2' then was = nil end
	end
	if not cell.a then ok = false
	elseif expired then ok = not new
	elseif new and was then
		h.fits = h.held
		ok = h.fits == 1
	elseif new and cell.open >= MOST then ok, h.many = false, 1
	elseif new and (cell.over <= now or amount + h.used + (precise ~= '' and h.before or
		carried(h.before, math.min(cell.over - now, cell.duration), cell.duration)) > h.limit) then ok = false
	elseif was and was.state > 2 then ok = true
	elseif was or as ~= '0' or ttl == 0 then
		if not was and as == '0' then after = 0 end
		if not was and restores then cell.n = cell.n + amount end
		local is = was or {amount = 0, after = 0, ends = 0}
		if ttl == 0 then
			set(cell, h.owner, {amount = after, after = after, ends = steady, state = (was or as ~= '0') and 3 or 4})
		else
			set(cell, h.owner, {amount = math.max(amount, is.amount), after = math.max(after, is.after),
				ends = math.max(steady + ttl, is.ends), state = ARGV[j+10] == '1' and 0 or 1})
		end
		if new then h.fits = 1 end
	end
	if not ok and ARGV[j+9] ~= '1' then refused = true end
end
if refused then
	out[4] = another and 3 or 2
	if asked then redis.call('HSET', KEYS[4], 'q', 1) end
	r, took = stored, false
	for i, cell in ipairs(cells) do
		if cell.more then write(load(i)) end
	end
elseif kind ~= '0' or #holds > 0 then
	out[5] = number + 1
	redis.call('SET', KEYS[3], text(number + 1), 'PX', text(2 * KEEP))
	for _, cell in ipairs(cells) do
		if cell.stated then
			local grown = math.max(0, cell.c - cell.t - cell.m - cell.n)
			cell.m, cell.a2, cell.grown = cell.m + grown, math.min(cell.a + grown, MAX), grown > 0
		end
	end
	for _, h in ipairs(holds) do
		local cell = h.cell
		local is = cell.a and cell.at > now and find(cell, h.owner)
		h.held = is and is.state < 3 and 1 or 0
		if is and (is.state < 3 or is.after > 0) and region(cell.a2, cell.r, cell.k) > 0 then
			cell.l2 = lower(cell.l2, h.limit)
		end
	end
	for _, c in ipairs(cells) do
		if c.a and c.at > now then
			if not put(c.key, c.old, text(c.at), c.a, c.r, c.k, c.l, c.a2, c.r, c.k, c.l2) then error(problem) end
			if c.old or c.a2 + c.r + c.k > 0 then mark(c.key, c.h, c.divided, region(c.a2, c.r, c.k) + c.f, now) end
			write(c)
		end
	end
	if stores then
		redis.call('HSET', KEYS[4], 't', r.t, 's', r.s, 'e', text(r.e), 'x', r.x and 1 or 0, 'q', r.q and 1 or 0, 'b', r.b,
			'w', r.w and 1 or 0)
		expire((r.x and steady or r.e) + KEEP - back, {KEYS[4]})
	elseif asked then redis.call('HSET', KEYS[4], 'q', 1) end
	note(KEYS[2])
end
out[6], out[7], out[8], out[9], out[10] = '', '', 0, 0, 0
if r then out[6], out[7], out[8], out[9], out[10] = r.t, r.s, r.e - back, r.x and 1 or 0, took and 1 or 0 end
if another then return out end
for _, h in ipairs(holds) do
	local cell, n = h.cell, #out
	out[n+1], out[n+2], out[n+3], out[n+4], out[n+5], out[n+6] = h.held, h.fits, h.many, h.used, h.before, h.open
	if cell.a then out[n+7], out[n+8] = region(cell.a2, cell.r, cell.k), cell.f else out[n+7], out[n+8] = -1, 0 end
end
return out
`
)
