-- Who may call the operators' API.

-- name: TokenInsert :exec
INSERT INTO ratelimit_tokens (name, hash, role, workspaces, created_by, expires_at, created_at)
VALUES (?, ?, ?, ?, ?, IF(CAST(sqlc.arg(expires_in_ms) AS SIGNED) > 0, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 +
    CAST(sqlc.arg(expires_in_ms) AS SIGNED), 0), UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: TokenByHash :one
-- The token of a secret; ends_at is when the secret opens nothing any more, 0 for never.
SELECT name, role, workspaces, expires_at AS ends_at, CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS UNSIGNED) AS now_ms
FROM ratelimit_tokens WHERE hash = ? AND revoked_at = 0;

-- name: TokenByOldHash :one
-- The token of which a secret is the one before.
SELECT name, role, workspaces, CAST(IF(expires_at > 0, LEAST(expires_at, old_until), old_until) AS UNSIGNED) AS ends_at,
  CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS UNSIGNED) AS now_ms
FROM ratelimit_tokens WHERE old_hash = ? AND revoked_at = 0;

-- name: TokenUsed :exec
-- Notes a use, unless one was noted within so many ms.
UPDATE ratelimit_tokens SET used_at = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000
WHERE name = ? AND used_at + sqlc.arg(within_ms) <= UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000;

-- name: TokenRotate :execrows
-- Assignments are from left to right: old_hash is the hash before.
UPDATE ratelimit_tokens SET old_hash = hash,
  old_until = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 + CAST(sqlc.arg(overlap_ms) AS SIGNED),
  hash = sqlc.arg(new_hash),
  expires_at = IF(CAST(sqlc.arg(expires_in_ms) AS SIGNED) > 0, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 +
    CAST(sqlc.arg(expires_in_ms) AS SIGNED), expires_at)
WHERE name = ? AND revoked_at = 0
  AND (expires_at = 0 OR expires_at > UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: TokenRevoke :execrows
UPDATE ratelimit_tokens SET revoked_at = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000
WHERE name = ? AND revoked_at = 0;

-- name: TokenList :many
SELECT name, role, workspaces, created_by, created_at, revoked_at, expires_at, used_at, old_until FROM ratelimit_tokens
WHERE name > sqlc.arg(after_name) ORDER BY name LIMIT ?;

-- name: TokenByName :one
-- A token, in force or not, and the clock of the database.
SELECT role, workspaces, revoked_at, expires_at, CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS UNSIGNED) AS now_ms
FROM ratelimit_tokens WHERE name = ?;
