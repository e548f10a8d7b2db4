-- name: AuditChainLock :exec
-- Locks the open end of the chain until the transaction ends. If the chain has not begun, it inserts the open end.
INSERT INTO ratelimit_audit_chain (entry_id, follows, previous_hash, hash) VALUES (0, 0, '', '')
ON DUPLICATE KEY UPDATE entry_id = 0;

-- name: AuditChainEnd :many
-- Returns the entry that the next entry follows, and the clock of the database. Without a row, the chain has not begun.
SELECT follows, previous_hash,
  CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms
FROM ratelimit_audit_chain WHERE entry_id = 0;

-- name: AuditInsert :execlastid
-- Fails on write_idx if the same entry was written before.
INSERT INTO ratelimit_audit (at, actor, action, subject, reason, before_state, after_state, write_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: AuditLinkInsert :exec
INSERT INTO ratelimit_audit_chain (entry_id, follows, previous_hash, hash) VALUES (?, ?, ?, ?);

-- name: AuditChainExtend :exec
UPDATE ratelimit_audit_chain SET follows = sqlc.arg(follows), previous_hash = sqlc.arg(previous_hash)
WHERE entry_id = 0;

-- name: AuditList :many
SELECT id, at, actor, action, subject, reason, before_state, after_state
FROM ratelimit_audit WHERE id < sqlc.arg(before_id) ORDER BY id DESC LIMIT ?;

-- name: AuditChainFirst :one
-- Returns the first entry of the chain, or 0 if the chain is empty.
SELECT CAST(COALESCE(MIN(entry_id), 0) AS UNSIGNED) AS first_id FROM ratelimit_audit_chain WHERE entry_id > 0;

-- name: AuditLinks :many
-- Returns entries with their links, oldest first. An entry without a link has NULLs.
SELECT a.id, a.at, a.actor, a.action, a.subject, a.reason, a.before_state, a.after_state, a.write_id,
  c.follows, c.previous_hash, c.hash
FROM ratelimit_audit a LEFT JOIN ratelimit_audit_chain c ON c.entry_id = a.id
WHERE a.id > sqlc.arg(after_id) ORDER BY a.id LIMIT ?;
