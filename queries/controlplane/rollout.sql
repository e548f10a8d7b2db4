-- Versions of the tuning as rollouts write and read them.

-- name: TuningNewest :many
-- The newest version of each region that has one, and of the fleet (region '').
SELECT version, region, document FROM ratelimit_tuning
WHERE version IN (SELECT MAX(t.version) FROM ratelimit_tuning t GROUP BY t.region)
ORDER BY region;

-- name: TuningNewestOf :one
-- The newest version of a region, 0 if it has none.
SELECT CAST(COALESCE(MAX(version), 0) AS SIGNED) AS version FROM ratelimit_tuning WHERE region = ?;

-- name: TuningWrite :execlastid
-- Fails on write_idx when this very write has been made before, and on replaces_idx when
-- another one has replaced the same version of the region.
INSERT INTO ratelimit_tuning (region, document, actor, reason, write_id, replaces, created_at)
VALUES (?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: TuningWritten :one
SELECT version, region, document FROM ratelimit_tuning WHERE write_id = ?;

-- name: TuningsOf :many
-- The versions whose write ids are within bounds, as those of one rollout are: oldest first.
SELECT version, region, document FROM ratelimit_tuning
WHERE write_id >= sqlc.arg(from_id) AND write_id < sqlc.arg(to_id)
ORDER BY version LIMIT ?;

-- name: TuningTraces :many
-- The newest versions that rollouts wrote, newest first.
SELECT version, actor, reason, write_id, created_at FROM ratelimit_tuning
WHERE write_id IS NOT NULL ORDER BY version DESC LIMIT ?;

-- name: RolloutBegan :exec
-- Fails on the primary key when the rollout is recorded already.
INSERT INTO ratelimit_rollouts (id, actor, reason, started_at) VALUES (?, ?, ?, ?);

-- name: RolloutHasBegun :one
SELECT COUNT(*) FROM ratelimit_rollouts WHERE id = ?;

-- name: RolloutsBegan :many
-- The rollouts that began last, newest first.
SELECT id, actor, reason, started_at FROM ratelimit_rollouts ORDER BY started_at DESC LIMIT ?;
