-- What operators set.

-- name: OverrideUpsert :exec
INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000)
ON DUPLICATE KEY UPDATE `limit` = VALUES(`limit`), duration_ms = VALUES(duration_ms),
  candidate = VALUES(candidate), shadow = VALUES(shadow), updated_at = VALUES(updated_at);

-- name: OverrideDelete :execrows
DELETE FROM ratelimit_overrides WHERE workspace_id = ? AND namespace = ? AND pattern = ?;

-- name: OverrideList :many
SELECT workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at
FROM ratelimit_overrides WHERE workspace_id = ? AND namespace = ? AND pattern > sqlc.arg(after_pattern)
ORDER BY pattern LIMIT ?;

-- name: OverrideGet :many
-- None or one. Whoever reads it to change it comes one after the other.
SELECT `limit`, duration_ms, candidate, shadow FROM ratelimit_overrides
WHERE workspace_id = ? AND namespace = ? AND pattern = ? FOR UPDATE;

-- name: NamespaceUpsert :exec
INSERT INTO ratelimit_namespaces (workspace_id, namespace, shadow, mode, outage, headroom, estimate, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000)
ON DUPLICATE KEY UPDATE shadow = VALUES(shadow), mode = VALUES(mode), outage = VALUES(outage),
  headroom = VALUES(headroom), estimate = VALUES(estimate), updated_at = VALUES(updated_at);

-- name: NamespaceDelete :execrows
DELETE FROM ratelimit_namespaces WHERE workspace_id = ? AND namespace = ?;

-- name: NamespaceGet :many
-- None or one, as OverrideGet.
SELECT shadow, mode, outage, headroom, estimate FROM ratelimit_namespaces
WHERE workspace_id = ? AND namespace = ? FOR UPDATE;

-- name: NamespaceList :many
SELECT workspace_id, namespace, shadow, mode, outage, headroom, estimate, updated_at
FROM ratelimit_namespaces WHERE workspace_id = ? ORDER BY namespace;
