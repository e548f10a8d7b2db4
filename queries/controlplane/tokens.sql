-- Who may call the operators' API.

-- name: TokenInsert :exec
INSERT INTO ratelimit_tokens (name, hash, role, created_by, created_at)
VALUES (?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: TokenByHash :one
SELECT name, role FROM ratelimit_tokens WHERE hash = ? AND revoked_at = 0;

-- name: TokenRevoke :execrows
UPDATE ratelimit_tokens SET revoked_at = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000
WHERE name = ? AND revoked_at = 0;

-- name: TokenList :many
SELECT name, role, created_by, created_at, revoked_at FROM ratelimit_tokens
WHERE name > sqlc.arg(after_name) ORDER BY name LIMIT ?;
