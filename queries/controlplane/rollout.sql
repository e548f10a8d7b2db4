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

-- name: TuningVersions :many
-- The versions before one, newest first.
SELECT version, region, document, actor, reason, write_id, created_at FROM ratelimit_tuning
WHERE version < sqlc.arg(before_version) ORDER BY version DESC LIMIT ?;

-- name: TuningVersionsOf :many
-- The versions of a region before one, newest first.
SELECT version, region, document, actor, reason, write_id, created_at FROM ratelimit_tuning
WHERE region = ? AND version < sqlc.arg(before_version) ORDER BY version DESC LIMIT ?;

-- name: RolloutBegan :exec
-- Fails on the primary key when the rollout is recorded already.
INSERT INTO ratelimit_rollouts (id, actor, reason, started_at, saved, phase, state) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: RolloutSave :exec
-- A state that was saved as often, or more often, stays.
UPDATE ratelimit_rollouts SET saved = sqlc.arg(saved), phase = sqlc.arg(phase), state = sqlc.arg(state)
WHERE id = sqlc.arg(id) AND saved < sqlc.arg(saved);

-- name: RolloutSaved :one
SELECT saved, state FROM ratelimit_rollouts WHERE id = ?;

-- name: RolloutNewer :one
-- The state, if it was saved more often.
SELECT state FROM ratelimit_rollouts WHERE id = ? AND saved > ?;

-- name: RolloutHasBegun :one
SELECT COUNT(*) FROM ratelimit_rollouts WHERE id = ?;

-- name: Rollouts :many
-- The rollouts that began last, newest first. A state that is no JSON has neither an end nor a reason. CONCAT gives the
-- reason its type in Go.
SELECT id, actor, reason, started_at, saved, phase,
  CONCAT(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(IF(JSON_VALID(state), state, NULL), '$.why')), '')) AS why,
  CAST(COALESCE(JSON_EXTRACT(IF(JSON_VALID(state), state, NULL), '$.ended_ms'), 0) AS SIGNED) AS ended_ms,
  CAST(COALESCE(JSON_EXTRACT(IF(JSON_VALID(state), state, NULL), '$.epoch'), 0) AS SIGNED) AS epoch
FROM ratelimit_rollouts ORDER BY started_at DESC, id LIMIT ?;

-- name: TrialWrite :execlastid
-- Fails on write_idx when this very write has been made before.
INSERT INTO ratelimit_trials (region, document, below, over_version, ends_at, write_id)
VALUES (sqlc.arg(region), sqlc.arg(document), sqlc.arg(below), sqlc.arg(over_version),
  UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 + CAST(sqlc.arg(lease_ms) AS UNSIGNED), sqlc.arg(write_id));

-- name: TrialWritten :one
SELECT number, region, document, below FROM ratelimit_trials WHERE write_id = ?;

-- name: TrialWiden :exec
-- A trial is never narrowed, and one that is over stays so.
UPDATE ratelimit_trials SET below = sqlc.arg(below) WHERE write_id = sqlc.arg(write_id) AND below < sqlc.arg(below);

-- name: TrialRenew :exec
-- A trial that is over stays so.
UPDATE ratelimit_trials
SET ends_at = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 + CAST(sqlc.arg(lease_ms) AS UNSIGNED)
WHERE write_id = sqlc.arg(write_id) AND ends_at > UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000;

-- name: TrialStands :one
-- Whether a trial goes on, what it is over and the newest version of its region, 0 if it has none.
SELECT t.region, t.over_version,
  CAST(t.ends_at > UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS goes_on,
  CAST(COALESCE((SELECT MAX(v.version) FROM ratelimit_tuning v WHERE v.region = t.region), 0) AS UNSIGNED) AS newest
FROM ratelimit_trials t WHERE t.write_id = ?;

-- name: TrialEnd :exec
-- One that has not begun is written as over: it does not begin later.
INSERT INTO ratelimit_trials (region, document, below, over_version, ends_at, write_id) VALUES (?, ?, ?, ?, 0, ?)
ON DUPLICATE KEY UPDATE ends_at = 0;
