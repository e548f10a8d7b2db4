-- One key's counts.

-- name: WindowCountsOfKey :many
-- What regions have published of a key, in all durations, modes and generations: one range
-- of the primary key, whatever a planner makes of expires_at.
SELECT duration_ms, sequence, region, count, updated_at
FROM ratelimit_window_counts FORCE INDEX (PRIMARY)
WHERE workspace_id = ? AND namespace = ? AND identifier = ?
  AND expiry_class IN (0, 1, 2) AND expires_at > sqlc.arg(now_ms)
ORDER BY duration_ms, sequence, region LIMIT ?;

-- name: ResetOfKey :many
-- None or one, for a look.
SELECT generation, set_at, expires_at FROM ratelimit_resets
WHERE workspace_id = ? AND namespace = ? AND identifier = ?;
