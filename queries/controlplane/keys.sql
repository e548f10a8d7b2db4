-- Counts of a single key.

-- name: WindowCountsOfKey :many
-- Returns the counts that regions have stored for a key, in all durations, modes and generations. FORCE INDEX makes it
-- read one range of the primary key, even if the planner would prefer expires_at_idx.
SELECT duration_ms, sequence, region, count, updated_at
FROM ratelimit_window_counts FORCE INDEX (PRIMARY)
WHERE workspace_id = ? AND namespace = ? AND identifier = ?
  AND expiry_class IN (0, 1, 2) AND expires_at > sqlc.arg(now_ms)
ORDER BY duration_ms, sequence, region LIMIT ?;

-- name: WindowCountsOfNamespace :many
-- Returns the counts that regions have stored for a range of a namespace's keys, by identifier. FORCE INDEX makes the
-- read begin at the first identifier of the range and end at LIMIT, however many keys the namespace has.
SELECT identifier, duration_ms, sequence, region, count, updated_at
FROM ratelimit_window_counts FORCE INDEX (PRIMARY)
WHERE workspace_id = ? AND namespace = ? AND identifier >= sqlc.arg(begins) AND identifier < sqlc.arg(ends)
  AND expiry_class IN (0, 1, 2) AND expires_at > sqlc.arg(now_ms)
ORDER BY identifier, duration_ms, sequence, region LIMIT ?;

-- name: ResetOfKey :many
-- Returns at most one row, without a lock.
SELECT generation, set_at, expires_at FROM ratelimit_resets
WHERE workspace_id = ? AND namespace = ? AND identifier = ?;

-- name: ResetsOf :many
-- Returns the resets of exactly these identifiers, without locks.
SELECT identifier, generation, set_at, expires_at FROM ratelimit_resets
WHERE workspace_id = ? AND namespace = ? AND identifier IN (sqlc.slice(identifiers));
