-- Versions of the tuning as rollouts write and read them.

-- name: TuningNewest :many
-- The newest version of each region that has one, and of the fleet (region '').
SELECT version, region, document FROM ratelimit_tuning
WHERE version IN (SELECT MAX(t.version) FROM ratelimit_tuning t GROUP BY t.region)
ORDER BY region;

-- name: TuningWrite :execlastid
-- Fails on write_idx when this very write has been made before.
INSERT INTO ratelimit_tuning (region, document, actor, reason, write_id, created_at)
VALUES (?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: TuningWritten :one
SELECT version FROM ratelimit_tuning WHERE write_id = ?;
