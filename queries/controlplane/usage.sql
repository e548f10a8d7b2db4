-- Statements that read the usage of namespaces, in the hours from from_ms until before until_ms. The row with empty names is
-- the cost of all other namespaces.

-- name: UsageReported :many
-- Returns the hours in which a node of a region reported. It reads one range of the primary key.
SELECT hour_at, region FROM ratelimit_usage
WHERE workspace_id = '' AND namespace = '' AND hour_at >= sqlc.arg(from_ms) AND hour_at < sqlc.arg(until_ms)
ORDER BY hour_at, region LIMIT ?;

-- name: UsageOf :many
-- Returns the hours in which a namespace had cost. It reads one range of the primary key.
SELECT hour_at, region, accepted, denied FROM ratelimit_usage
WHERE workspace_id = ? AND namespace = ? AND hour_at >= sqlc.arg(from_ms) AND hour_at < sqlc.arg(until_ms)
ORDER BY hour_at, region LIMIT ?;

-- name: UsageTop :many
-- Returns the namespaces with the most cost, accepted and denied together.
SELECT workspace_id, namespace,
       CAST(LEAST(SUM(accepted), 4611686018427387903) AS SIGNED) AS accepted,
       CAST(LEAST(SUM(denied), 4611686018427387903) AS SIGNED) AS denied
FROM ratelimit_usage
WHERE hour_at >= sqlc.arg(from_ms) AND hour_at < sqlc.arg(until_ms)
  AND (CAST(sqlc.arg(all_regions) AS SIGNED) = 1 OR region = sqlc.arg(region))
GROUP BY workspace_id, namespace
ORDER BY SUM(accepted) + SUM(denied) DESC, workspace_id, namespace LIMIT ?;

-- name: UsageTopOf :many
-- Is UsageTop for some workspaces.
SELECT workspace_id, namespace,
       CAST(LEAST(SUM(accepted), 4611686018427387903) AS SIGNED) AS accepted,
       CAST(LEAST(SUM(denied), 4611686018427387903) AS SIGNED) AS denied
FROM ratelimit_usage
WHERE workspace_id IN (sqlc.slice(workspaces))
  AND hour_at >= sqlc.arg(from_ms) AND hour_at < sqlc.arg(until_ms)
  AND (CAST(sqlc.arg(all_regions) AS SIGNED) = 1 OR region = sqlc.arg(region))
GROUP BY workspace_id, namespace
ORDER BY SUM(accepted) + SUM(denied) DESC, workspace_id, namespace LIMIT ?;
