-- name: AuditInsert :exec
INSERT INTO ratelimit_audit (at, actor, action, subject, reason, before_state, after_state)
VALUES (UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000, ?, ?, ?, ?, ?, ?);

-- name: AuditList :many
SELECT id, at, actor, action, subject, reason, before_state, after_state
FROM ratelimit_audit WHERE id < sqlc.arg(before_id) ORDER BY id DESC LIMIT ?;
