-- name: AuditInsert :exec
-- Fails on write_idx when this very entry has been written before.
INSERT INTO ratelimit_audit (at, actor, action, subject, reason, before_state, after_state, write_id)
VALUES (UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000, ?, ?, ?, ?, ?, ?, ?);

-- name: AuditList :many
SELECT id, at, actor, action, subject, reason, before_state, after_state
FROM ratelimit_audit WHERE id < sqlc.arg(before_id) ORDER BY id DESC LIMIT ?;
