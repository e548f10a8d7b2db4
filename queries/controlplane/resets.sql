-- Resets of keys.

-- name: ResetGet :many
-- Returns at most one row, and locks it, so that two changes of the row run one after the other.
SELECT generation, set_at, expires_at FROM ratelimit_resets
WHERE workspace_id = ? AND namespace = ? AND identifier = ? FOR UPDATE;

-- name: ResetUpsert :exec
-- ResetGet must have locked the row. A generation can be lower than the previous generation, because the first follows
-- the last.
INSERT INTO ratelimit_resets (workspace_id, namespace, identifier, generation, set_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
  generation = VALUES(generation), set_at = VALUES(set_at),
  expires_at = GREATEST(expires_at, VALUES(expires_at));

-- name: ResetList :many
SELECT workspace_id, namespace, identifier, generation, set_at, expires_at
FROM ratelimit_resets WHERE workspace_id = ? AND namespace = ? ORDER BY set_at DESC LIMIT ?;

-- name: ResetsCount :one
SELECT CAST(COUNT(*) AS SIGNED) AS resets FROM ratelimit_resets;

-- name: ResetsDeleteExpired :execrows
DELETE FROM ratelimit_resets WHERE expires_at < sqlc.arg(cutoff_ms) ORDER BY expires_at LIMIT ?;
