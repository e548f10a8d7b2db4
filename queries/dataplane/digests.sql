-- name: DigestUpsert :exec
INSERT INTO ratelimit_digests (region, node_id, key_count, filter, made_at, expires_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000)
ON DUPLICATE KEY UPDATE
  key_count = VALUES(key_count), filter = VALUES(filter), made_at = VALUES(made_at), expires_at = VALUES(expires_at),
  updated_at = GREATEST(updated_at, VALUES(updated_at));

-- name: DigestTouch :exec
-- Stamps a digest anew that became visible long after its stamp.
UPDATE ratelimit_digests SET updated_at = GREATEST(updated_at, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000)
WHERE region = ? AND node_id = ?;

-- name: DigestsSince :many
-- Other regions' digests that were replaced since a moment.
SELECT region, node_id, key_count, filter, made_at, expires_at
FROM ratelimit_digests FORCE INDEX (updated_at_idx)
WHERE updated_at >= sqlc.arg(since_ms) AND region <> sqlc.arg(region) AND expires_at > sqlc.arg(now_ms);
