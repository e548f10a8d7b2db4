-- Versions of the tuning, and rollouts with their trials.

-- name: TuningNewest :many
-- Returns the newest version of each region that has a version, and of the fleet (region '').
SELECT version, region, document FROM ratelimit_tuning
WHERE version IN (SELECT MAX(t.version) FROM ratelimit_tuning t GROUP BY t.region)
ORDER BY region;

-- name: TuningNewestOf :one
-- Returns the newest version of a region, or 0 if it has none.
SELECT CAST(COALESCE(MAX(version), 0) AS SIGNED) AS version FROM ratelimit_tuning WHERE region = ?;

-- name: TuningWrite :execlastid
-- Fails on write_idx if the same write was made before. Fails on replaces_idx if another write has replaced the same
-- version of the region.
INSERT INTO ratelimit_tuning (region, document, actor, reason, write_id, replaces, created_at)
VALUES (?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: TuningWritten :one
SELECT version, region, document FROM ratelimit_tuning WHERE write_id = ?;

-- name: TuningsOf :many
-- Returns the versions whose write IDs are within bounds, oldest first. For example, bounds can select the versions of
-- one rollout.
SELECT version, region, document FROM ratelimit_tuning
WHERE write_id >= sqlc.arg(from_id) AND write_id < sqlc.arg(to_id)
ORDER BY version LIMIT ?;

-- name: TuningVersions :many
-- Returns the versions before a version, newest first.
SELECT version, region, document, actor, reason, write_id, created_at FROM ratelimit_tuning
WHERE version < sqlc.arg(before_version) ORDER BY version DESC LIMIT ?;

-- name: TuningVersionsOf :many
-- Returns the versions of a region before a version, newest first.
SELECT version, region, document, actor, reason, write_id, created_at FROM ratelimit_tuning
WHERE region = ? AND version < sqlc.arg(before_version) ORDER BY version DESC LIMIT ?;

-- name: RolloutBegan :exec
-- Fails on the primary key if the rollout is already recorded.
INSERT INTO ratelimit_rollouts (id, actor, reason, started_at, saved, phase, state) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: RolloutSave :exec
-- Stores a state unless the stored state was saved as often, or more often.
UPDATE ratelimit_rollouts SET saved = sqlc.arg(saved), phase = sqlc.arg(phase), state = sqlc.arg(state)
WHERE id = sqlc.arg(id) AND saved < sqlc.arg(saved);

-- name: RolloutSaved :one
SELECT saved, state FROM ratelimit_rollouts WHERE id = ?;

-- name: RolloutNewer :one
-- Returns the state if it was saved more often.
SELECT state FROM ratelimit_rollouts WHERE id = ? AND saved > ?;

-- name: RolloutHasBegun :one
SELECT COUNT(*) FROM ratelimit_rollouts WHERE id = ?;

-- name: Rollouts :many
-- Returns the rollouts that began last, newest first. If a state is not valid JSON, its end is 0 and its reason is
-- empty. CONCAT gives the reason its type in Go.
SELECT id, actor, reason, started_at, saved, phase,
  CONCAT(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(IF(JSON_VALID(state), state, NULL), '$.why')), '')) AS why,
  CAST(COALESCE(JSON_EXTRACT(IF(JSON_VALID(state), state, NULL), '$.ended_ms'), 0) AS SIGNED) AS ended_ms,
  CAST(COALESCE(JSON_EXTRACT(IF(JSON_VALID(state), state, NULL), '$.epoch'), 0) AS SIGNED) AS epoch
FROM ratelimit_rollouts ORDER BY started_at DESC, id LIMIT ?;

-- name: TrialWrite :execlastid
-- Fails on write_idx if the same write was made before.
INSERT INTO ratelimit_trials (region, document, below, over_version, ends_at, write_id)
VALUES (sqlc.arg(region), sqlc.arg(document), sqlc.arg(below), sqlc.arg(over_version),
  UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 + CAST(sqlc.arg(lease_ms) AS UNSIGNED), sqlc.arg(write_id));

-- name: TrialWritten :one
SELECT number, region, document, below FROM ratelimit_trials WHERE write_id = ?;

-- name: TrialWiden :exec
-- Widens a trial. It never narrows a trial, and does not revive a trial that has ended.
UPDATE ratelimit_trials SET below = sqlc.arg(below) WHERE write_id = sqlc.arg(write_id) AND below < sqlc.arg(below);

-- name: TrialRenew :exec
-- Renews a trial, unless it has ended.
UPDATE ratelimit_trials
SET ends_at = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 + CAST(sqlc.arg(lease_ms) AS UNSIGNED)
WHERE write_id = sqlc.arg(write_id) AND ends_at > UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000;

-- name: TrialStands :one
-- Reports whether a trial has not ended. Also returns the version that it replaces, and the newest version of its region,
-- or 0 if the region has none.
SELECT t.region, t.over_version,
  CAST(t.ends_at > UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS goes_on,
  CAST(COALESCE((SELECT MAX(v.version) FROM ratelimit_tuning v WHERE v.region = t.region), 0) AS UNSIGNED) AS newest
FROM ratelimit_trials t WHERE t.write_id = ?;

-- name: TrialEnd :exec
-- Ends a trial. If the trial has not begun, it is stored as ended, so that it cannot begin later.
INSERT INTO ratelimit_trials (region, document, below, over_version, ends_at, write_id) VALUES (?, ?, ?, ?, 0, ?)
ON DUPLICATE KEY UPDATE ends_at = 0;
