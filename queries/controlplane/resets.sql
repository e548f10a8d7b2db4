-- Resets of keys.

-- name: ResetGet :many
-- None or one. The row is locked: two changes of it come one after the other.
SELECT generation, set_at, expires_at FROM ratelimit_resets
WHERE workspace_id = ? AND namespace = ? AND identifier = ? FOR UPDATE;

-- name: ResetUpsert :exec
-- ResetGet has locked the row. A generation may be lower than the one before: after the last comes the first.
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
