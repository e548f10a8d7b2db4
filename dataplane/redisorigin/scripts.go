package redisorigin

import (
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// The scripts of an Origin, one for each operation, sent in full each time. Every number that they take is an integer
// of at most 2^53 - 1: store's checks refuse larger ones, or bounded cuts them off. A cell is a hash:
//
//	a  sum of Add       r  sum of Restore       k  greatest Known       (see store.Cost)
//	f  foreign total    l  lowest limit    h  history, see luaHistory
//	b  by how many milliseconds the clock had been set back when the cell was made, see luaClock
//
// each an integer of 0 to 2^53 - 1, which Lua's numbers hold exactly. Fields that are 0 are left out. A cell that holds
// anything else is answered as junk and left alone. h is text.
//
// If the server refuses a script (out of memory, read only, not permitted), it must refuse its first write. A full
// server takes a first write that needs no memory, and all writes after it, so the relay's lease, changes and settings
// still work there. Later writes of single cells are tried in turn: a cell that can't be written is reported as such.
//
// All scripts but apply, ack and the lease's take the epoch's key first and a token for a new epoch. They answer with a
// head: epoch, seconds and microseconds of the server's clock, then the operation's values. The last key of all scripts
// but the release's is the bucket's clock.
var (
	sendScript    = lua(luaClock, luaRecord, luaHistory, luaEpoch, luaPut, luaSend)
	readScript    = lua(luaClock, luaRecord, luaEpoch, luaGet)
	applyScript   = lua(luaClock, luaRecord, luaHistory, luaApply)
	changesScript = lua(luaClock, luaRecord, luaEpoch, luaChanges)
	ackScript     = lua(luaClock, luaRecord, luaAck)
	raiseScript   = lua(luaClock, luaRecord, luaEpoch, luaPut, luaRaise)
	healedScript  = lua(luaClock, luaEpoch, luaHealed)
	leaseScript   = lua(luaClock, luaLease)
	releaseScript = lua(luaRelease)
	clockScript   = lua(luaClock, luaEpoch, `return {e, t[1], t[2]}`)
)

// lua joins parts of a script and removes comments and indentation. It adds the script's commands
// to Rights.
func lua(parts ...string) string {
	for _, part := range parts {
		for _, call := range scriptCall.FindAllStringSubmatch(part, -1) {
			scriptCommands[strings.ToLower(call[1])] = true
		}
	}
	var b strings.Builder
	for line := range strings.Lines(clockBounds.Replace(strings.Join(parts, "\n"))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// clockBounds replaces the names of numbers in luaClock.
var clockBounds = strings.NewReplacer(
	"SET_BACK", milliseconds(store.ClockSetBack), "AHEAD_MAX", milliseconds(store.AheadMax),
	"CLOCK_KEPT", milliseconds(window.DurationMax), "STEPS_MAX", "8",
)

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Answers in place of a region total.
const (
	cellJunk      = -1
	cellEpoch     = -2
	cellUnwritten = -3
)

const (
	// luaClock reads the server's clock, and finds out whether it was set back: see store.Origin. The last key stores the
	// bucket's clock: the latest reading, at most a second old, by how many milliseconds the clock was set back so far,
	// and for each of the last times: the reading before, the reading after, and that sum since. For example, if the clock
	// shows 5 s less than at the latest reading, the sum grows by 5,000.
	//
	// steady is the time by which holds, records, slots and leases end. It is the clock's time plus the sum of all steps
	// back, so it never goes back. A server that takes no write goes on with the stored readings.
	luaClock = `
local CLOCK = table.remove(KEYS)
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local latest, back, steps, most = now, 0, {}, 0
do
	local kept = string.gmatch(redis.call('GET', CLOCK) or '', '%d+')
	local function number() return tonumber((kept())) end
	local known, sum = number(), number()
	if sum then latest, back = known, sum end
	for from in kept do
		local to, since = number(), number()
		if since then steps[#steps+1] = {tonumber(from), to, since} end
	end
	local isBack = latest - now > SET_BACK
	if isBack then
		back = back + latest - now
		steps[#steps+1] = {latest, now, back}
		if #steps > STEPS_MAX then table.remove(steps, 1) end
	end
	if isBack or not sum or now - latest >= 1000 then
		local text = string.format('%.0f %.0f', now, back)
		for _, s in ipairs(steps) do text = text .. string.format(' %.0f %.0f %.0f', s[1], s[2], s[3]) end
		redis.pcall('SET', CLOCK, text, 'PX', CLOCK_KEPT)
	end
	if isBack or now > latest then latest = now end
	for _, s in ipairs(steps) do most = math.max(most, s[1]) end
end
local steady = latest + back
-- begins returns when a cell begins, less how long before that it may have counts.
local function begins(key)
	local duration, sequence = string.match(key, '(%d+)}:(%-?%d+):?%d*$')
	duration = tonumber(duration)
	return sequence * duration - math.min(duration, AHEAD_MAX)
end
-- early reports whether a cell counts as expired because it is ahead of a clock that was set back.
local function early(key) return now < most and begins(key) > now end
-- forgotten reports whether a cell was ahead when the clock was set back, and was made before.
local function forgotten(key, made)
	if made == back then return false end
	for _, s in ipairs(steps) do
		if s[3] > made and begins(key) > s[2] then return true end
	end
	return false
end
`

	luaRecord = `
local MAX = 9007199254740991
local function num(v)
	if not v then return 0 end
	local n = tonumber(v)
	if n and n >= 0 and n <= MAX and n % 1 == 0 then return n end
end
-- record returns a, r, k, f, l, whether the record exists, and h. Of junk it returns nothing.
local function record(key)
	local v = redis.pcall('HMGET', key, 'a', 'r', 'k', 'f', 'l', 'b', 'h')
	if v.err then return end
	if #steps > 0 and (v[1] or v[4]) and forgotten(key, num(v[6]) or 0) then
		redis.call('DEL', key)
		v = {}
	end
	local a, r, k, f, l = num(v[1]), num(v[2]), num(v[3]), num(v[4]), num(v[5])
	if a and r and k and f and l then
		return a, r, k, f, l, (v[1] or v[2] or v[3] or v[4]) and true or nil, v[7] or ''
	end
end
local function region(a, r, k) return math.min(a + math.max(r, k), MAX) end
`

	// A history is text: the units a mark, how many marks and steps, the cell's duration and its start, and then one
	// character for each mark, '0' for the first step. For example, "10 28 28 60000 1700000040000 003" has two marks in
	// the first step and a third mark in the fourth, of a cell of a minute with 10 units a mark. See window.History.
	//
	// mark sets the marks that a total has reached by now. divided is the text of an empty history, for a cell without
	// one. It writes only to a key that exists. A mark that can't be written is set later.
	luaHistory = `
local function marked(h, total, now)
	local g, n, m, d, s, marks = string.match(h, '^(%d+) (%d+) (%d+) (%d+) (%d+) ?(.*)$')
	if not g then return h end
	local step = math.max(0, math.floor((now - s) * m / d))
	if step >= tonumber(m) then return h end
	if #marks > 0 then step = math.max(step, string.byte(marks, -1) - 48) end
	local due = math.min(tonumber(n), math.floor(total / g)) - #marks
	if due <= 0 then return h end
	return g .. ' ' .. n .. ' ' .. m .. ' ' .. d .. ' ' .. s .. ' ' .. marks .. string.rep(string.char(48 + step), due)
end
local function mark(key, h, divided, total, now)
	if h == '' and divided == '' then return '' end
	local is = marked(h ~= '' and h or divided, total, now)
	if is ~= h then redis.pcall('HSET', key, 'h', is) end
	return is
end
`

	luaEpoch = `
local e = redis.call('GET', KEYS[1])
if not e then
	e = ARGV[1]
	redis.call('SET', KEYS[1], e)
end
local out = {e, t[1], t[2]}
`

	// put writes a cell that has changed, and adds it to the changes if a relay must publish it. It returns false if the
	// cell can't be written.
	luaPut = `
local changed, problem = {}, ''
local function failed(x)
	if type(x) ~= 'table' or not x.err then return false end
	problem = x.err
	return true
end
local function put(key, old, at, a, r, k, l, a2, r2, k2, l2)
	if a2 == a and r2 == r and k2 == k and l2 == l then return true end
	if not old and early(key) then return true end
	local set
	if r2 ~= r or k2 ~= k then set = redis.pcall('HSET', key, 'a', a2, 'r', r2, 'k', k2, 'l', l2)
	elseif l2 ~= l then set = redis.pcall('HSET', key, 'a', a2, 'l', l2)
	else set = redis.pcall('HSET', key, 'a', a2) end
	if failed(set) then return false end
	if not old and back > 0 then redis.pcall('HSET', key, 'b', string.format('%.0f', back)) end
	if not old and failed(redis.pcall('PEXPIREAT', key, at)) then
		redis.pcall('DEL', key)
		return false
	end
	if l2 > 0 and (l2 ~= l or region(a2, r2, k2) ~= region(a, r, k)) then
		changed[#changed + 1] = at
		changed[#changed + 1] = key
	end
	return true
end
local function lower(l, limit)
	if limit > 0 and (l == 0 or limit < l) then return limit end
	return l
end
-- note adds the changed cells, and removes expired cells. It returns 0 if a command failed: the counts stand, and a
-- scan finds them.
local function note(changes)
	if #changed == 0 then return 1 end
	if failed(redis.pcall('ZADD', changes, unpack(changed))) then return 0 end
	if failed(redis.pcall('ZREMRANGEBYSCORE', changes, '-inf', now)) then return 0 end
	return 1
end
`

	// luaSend adds a chunk. Its keys are the stream, the changes and the cells. Its arguments are:
	//
	//	the chunk's number
	//	the number that the stream should have, the epoch in which it should, and 1 if it must not have a larger one
	//	how long a stream is kept, at least, and at most where its cells last longer
	//	for each cell: epoch (0: any), add, restore, known, limit, expiry, the largest total that has room for it
	//	(-1: none; empty: any), and an empty history (empty: the cell needs none)
	//
	// It answers with:
	//
	//	the number that the stream had
	//	1 if it should have had another number: then nothing was done
	//	1 if all changes are noted, and why cells could not be written
	//	a digit for each cell, 1 if it has a bound and was added; nothing if no cell was
	//	region, foreign and history of each cell
	//
	// A stream's value is its last number, and the digits behind it.
	luaSend = `
local number, last, bits = tonumber(ARGV[2]), string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) ?([01]*)$')
last, bits = num(last) or 0, bits or ''
out[4], out[5], out[6], out[7], out[8] = last, 0, 1, '', bits
local far = tonumber(ARGV[3])
if ARGV[4] == e and (last < far or ARGV[5] == '1' and last > far) then
	out[5] = 1
	return out
end
local new, keep = number > last, 0
local function remember(bits) redis.call('SET', KEYS[2], ARGV[2] .. bits, 'PX', keep) end
if new then
	keep = math.max(ARGV[6], redis.call('PTTL', KEYS[2]))
	for j = 13, #ARGV, 8 do keep = math.max(keep, ARGV[j] - now) end
	keep = string.format('%.0f', math.min(keep, ARGV[7]))
	remember('')
end
local digits, added = {}, false
for i = 4, #KEYS do
	local key, j = KEYS[i], 8 * i - 24
	local n, room = #out, ARGV[j+6]
	local a, r, k, f, l, old, h = record(key)
	digits[i-3], out[n+3] = 0, ''
	if not a then out[n+1], out[n+2] = -1, 0
	elseif ARGV[j] ~= e and (ARGV[j] ~= '0' or room == '') then out[n+1], out[n+2] = -2, 0
	else
		local a2, r2, k2, l2 = a, r, k, l
		local fits = new and (room == '' or region(a, r, k) <= tonumber(room))
		if fits then
			a2 = math.min(a + ARGV[j+1], MAX)
			r2 = math.min(r + ARGV[j+2], MAX)
			k2 = math.max(k, tonumber(ARGV[j+3]))
			if a2 + r2 + k2 > 0 then l2 = lower(l, tonumber(ARGV[j+4])) end
		end
		if put(key, old, ARGV[j+5], a, r, k, l, a2, r2, k2, l2) then
			out[n+1], out[n+2] = region(a2, r2, k2), f
			if old or a2 + r2 + k2 > 0 then out[n+3] = mark(key, h, ARGV[j+7], out[n+1] + f, now) end
			if fits and room ~= '' then digits[i-3], added = 1, true end
		else out[n+1], out[n+2] = -3, 0 end
	end
end
if new then
	out[8] = added and table.concat(digits) or ''
	if added then remember(' ' .. out[8]) end
end
out[6] = note(KEYS[3])
out[7] = problem
return out
`

	luaGet = `
for i = 2, #KEYS do
	local a, r, k, f, l, old, h = record(KEYS[i])
	local n = #out
	if a then out[n+1], out[n+2], out[n+3] = region(a, r, k), f, h
	else out[n+1], out[n+2], out[n+3] = -1, 0, '' end
end
return out
`

	// luaApply takes the keys of cells; the channel; for each cell count and expiry. The first key is the
	// epoch's, so that a Cluster finds the bucket.
	luaApply = `
local raised = {}
for i = 2, #KEYS do
	local key, count, at = KEYS[i], tonumber(ARGV[2*i-2]), ARGV[2*i-1]
	local a, r, k, f, l, old, h = record(key)
	if a and count > f and tonumber(at) > now and (old or not early(key)) then
		redis.call('HSET', key, 'f', count)
		if not old then
			if back > 0 then redis.pcall('HSET', key, 'b', string.format('%.0f', back)) end
			local set = redis.pcall('PEXPIREAT', key, at)
			if type(set) == 'table' and set.err then
				redis.pcall('DEL', key)
				return set
			end
		end
		mark(key, h, '', region(a, r, k) + count, now)
		raised[#raised + 1] = key .. ' ' .. ARGV[2*i-2]
	end
end
if #raised > 0 then redis.call('PUBLISH', ARGV[1], table.concat(raised, '\n')) end
return #raised
`

	// luaChanges takes the keys of the changes and of the healed mark, how many changes to take, and the change after
	// which to begin, by expiry and key. It answers with the number of changes and 1 if the bucket is healed; key, region
	// and limit of each. The key to begin after may have been removed. If there is no room to add it again, luaChanges
	// begins with the changes of the same expiry.
	luaChanges = `
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
out[4] = redis.call('ZCARD', KEYS[2])
out[5] = redis.call('GET', KEYS[3]) == e and 1 or 0
local n, from = tonumber(ARGV[2]), 0
if out[4] > n then
	local set = redis.pcall('ZADD', KEYS[2], 'NX', ARGV[3], ARGV[4])
	if type(set) == 'table' then from = redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. ARGV[3])
	else
		from = redis.call('ZRANK', KEYS[2], ARGV[4]) + 1 - set
		if set == 1 then redis.call('ZREM', KEYS[2], ARGV[4]) end
	end
end
local keys = redis.call('ZRANGE', KEYS[2], from, from + n - 1)
local rest = math.min(n - #keys, from)
if rest > 0 then
	for _, key in ipairs(redis.call('ZRANGE', KEYS[2], 0, rest - 1)) do keys[#keys + 1] = key end
end
for _, key in ipairs(keys) do
	local a, r, k, f, l, old = record(key)
	if a and old and l > 0 then
		local n = #out
		out[n+1], out[n+2], out[n+3] = key, region(a, r, k), l
	else
		redis.call('ZREM', KEYS[2], key)
		out[4] = out[4] - 1
	end
end
return out
`

	// luaAck takes the keys of the changes and the cells; for each cell region and limit.
	luaAck = `
local acked = {}
for i = 2, #KEYS do
	local a, r, k, f, l = record(KEYS[i])
	if a and region(a, r, k) == tonumber(ARGV[2*i-3]) and l == tonumber(ARGV[2*i-2]) then acked[#acked + 1] = KEYS[i] end
end
if #acked > 0 then redis.call('ZREM', KEYS[1], unpack(acked)) end
return #acked
`

	// luaRaise takes the keys of the healed mark, the changes and the cells; the epoch that is meant; for each cell count,
	// limit and expiry. It answers with 1 if the bucket has another epoch, and why cells could not be written.
	luaRaise = `
out[4], out[5] = 0, ''
if e ~= ARGV[2] then
	out[4] = 1
	return out
end
if redis.call('GET', KEYS[2]) == e then return out end
for i = 4, #KEYS do
	local key, j = KEYS[i], 3 * i - 9
	local a, r, k, f, l, old = record(key)
	local count = tonumber(ARGV[j])
	if a and count > 0 then
		put(key, old, ARGV[j+2], a, r, k, l, a, r, math.max(k, count), lower(l, tonumber(ARGV[j+1])))
	end
end
note(KEYS[3])
out[5] = problem
return out
`

	luaHealed = `
out[4] = 0
if e ~= ARGV[2] then out[4] = 1 else redis.call('SET', KEYS[2], e) end
return out
`

	// luaLease takes the keys of the lease and of its end: the holder, and when the lease ends by the steady time, because
	// the key of the lease expires late if the clock is set back. It answers with the holder and the remaining
	// milliseconds. A full server only refuses a script's first write, and only if it may need memory. So PEXPIRE renews a
	// lease, and DEL comes before SET.
	luaLease = `
local me, ttl = ARGV[1], tonumber(ARGV[2])
local holder, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local ends, of = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.*)$')
if ends and of == holder then left = math.min(left, ends - steady) end
if holder and left > 0 and (holder ~= me or left >= ttl) then return {holder, left} end
if holder ~= me or redis.call('PEXPIRE', KEYS[1], ttl) == 0 then
	redis.call('DEL', KEYS[1])
	redis.call('SET', KEYS[1], me, 'PX', ttl)
end
redis.call('SET', KEYS[2], string.format('%.0f ', steady + ttl) .. me, 'PX', ttl)
return {me, ttl}
`

	luaRelease = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`
)
