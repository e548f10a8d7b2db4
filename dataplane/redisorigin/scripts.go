package redisorigin

// The scripts, sent whole each time: there is nothing to load first, and no server
// that has forgotten them. They take some numbers for each key, the last of them when
// it expires (Unix ms). Numbers go in as text and, from 2^53 on, come out as text,
// since Lua's are float64.
//
// The errors of addScript and claimScript are values of single keys: once one has
// written, it does not fail as a whole. raiseScript may fail halfway, as it may be
// repeated.
const (
	// addScript takes cost and expiry, and answers with each total.
	addScript = luaIncrement + `
local totals = {}
for i, key in ipairs(KEYS) do
	totals[i] = increment(key, ARGV[2*i-1], ARGV[2*i])
end
return totals`

	// claimScript takes cost, the largest total that has room for it (-1 for none),
	// and expiry. It answers with each total and whether the cost was added.
	claimScript = luaIncrement + luaLess + `
local answers = {}
for i, key in ipairs(KEYS) do
	local cost, room = ARGV[3*i-2], ARGV[3*i-1]
	local stored = redis.pcall('GET', key) or '0'
	if type(stored) == 'table' then
		answers[i] = stored
	elseif not count(stored) then
		answers[i] = redis.error_reply('ERR value is no count')
	elseif room == '-1' or less(room, stored) then
		answers[i] = {stored, 0}
	else
		local total = increment(key, cost, ARGV[3*i])
		if type(total) == 'table' then answers[i] = total else answers[i] = {total, 1} end
	end
end
return answers`

	// raiseScript takes count and expiry.
	raiseScript = luaLess + `
for i, key in ipairs(KEYS) do
	local total = ARGV[2*i-1]
	local stored = redis.pcall('GET', key) or '0'
	if type(stored) == 'table' and string.find(stored.err, 'WRONGTYPE', 1, true) then stored = '' end
	if type(stored) == 'table' then return stored end
	if not count(stored) then stored = '0' end
	if less(stored, total) then
		local set = redis.pcall('SET', key, total, 'PXAT', ARGV[2*i])
		if set.err then return set end
	end
end
return #KEYS`

	// luaIncrement adds to a key and returns its total, or an error. Where the expiry
	// cannot be set (not permitted, say) it takes the increment back, so that no key
	// is left without one.
	luaIncrement = `
local function increment(key, cost, at)
	local total = redis.pcall('INCRBY', key, cost)
	if type(total) == 'table' then return total end
	local exact = total
	if total >= 9007199254740992 then exact = redis.pcall('GET', key) end
	local set = redis.pcall('PEXPIREAT', key, at)
	if type(set) == 'table' then
		redis.pcall('DECRBY', key, cost)
		if redis.pcall('GET', key) == '0' then redis.pcall('DEL', key) end
		return set
	end
	return exact
end
`

	// luaLess compares counts as text, exactly.
	luaLess = `
local function less(a, b) return #a < #b or #a == #b and a < b end
local function count(s)
	return s == '0' or string.find(s, '^[1-9]%d*$') and not less('9223372036854775807', s)
end
`
)
