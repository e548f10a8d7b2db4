-- Tokens for the operators' API.

-- name: TokenInsert :exec
INSERT INTO ratelimit_tokens (name, hash, role, workspaces, created_by, expires_at, created_at)
VALUES (?, ?, ?, ?, ?, IF(CAST(sqlc.arg(expires_in_ms) AS SIGNED) > 0, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 +
    CAST(sqlc.arg(expires_in_ms) AS SIGNED), 0), UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: TokenByHash :one
-- Returns the token that has a secret. ends_at is the time from which the secret is no longer valid, 0 for never.
SELECT name, role, workspaces, expires_at AS ends_at, CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS UNSIGNED) AS now_ms
FROM ratelimit_tokens WHERE hash = ? AND revoked_at = 0;

-- name: TokenByOldHash :one
-- Returns the token that had a secret before its rotation.
SELECT name, role, workspaces, CAST(IF(expires_at > 0, LEAST(expires_at, old_until), old_until) AS UNSIGNED) AS ends_at,
  CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS UNSIGNED) AS now_ms
FROM ratelimit_tokens WHERE old_hash = ? AND revoked_at = 0;

-- name: TokenUsed :exec
-- Records a use, unless a use was recorded within within_ms.
UPDATE ratelimit_tokens SET used_at = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000
WHERE name = ? AND used_at + sqlc.arg(within_ms) <= UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000;

-- name: TokenRotate :execrows
-- Replaces the secret. Assignments run from left to right, so old_hash becomes the previous hash.
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
-- Returns a token, valid or not, and the clock of the database.
SELECT role, workspaces, revoked_at, expires_at, CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS UNSIGNED) AS now_ms
FROM ratelimit_tokens WHERE name = ?;
