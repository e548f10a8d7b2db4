-- Settings of operators, read by nodes.

-- name: TuningForRegion :many
-- Returns the newest version for the region and the newest version for the fleet. A region's own version takes
-- precedence, even if the fleet's version is newer.
SELECT version, region, document FROM ratelimit_tuning
WHERE version IN (
  SELECT MAX(t.version) FROM ratelimit_tuning t
  WHERE t.region = sqlc.arg(region) OR t.region = ''
  GROUP BY t.region
);

-- name: TrialsForRegion :many
-- Returns the newest trial for the region, and the newest trial for regions without a tuning or a trial of their own. A
-- trial that has ended is left out.
SELECT number, region, document, below, over_version,
  CAST(ends_at AS SIGNED) - CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS left_ms
FROM ratelimit_trials
WHERE number IN (
  SELECT MAX(t.number) FROM ratelimit_trials t
  WHERE t.region = sqlc.arg(region) OR t.region = ''
  GROUP BY t.region
) AND ends_at > UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000;

-- name: Namespaces :many
SELECT workspace_id, namespace, CAST(shadow <> 0 AS SIGNED) AS shadow, mode, outage, node_share, window_kind, estimate
FROM ratelimit_namespaces;

-- name: Overrides :many
SELECT workspace_id, namespace, pattern, `limit`, duration_ms, candidate, CAST(shadow <> 0 AS SIGNED) AS shadow
FROM ratelimit_overrides;

-- name: Resets :many
-- Returns the newest resets first, so that the limit cuts off the oldest.
SELECT workspace_id, namespace, identifier, generation, set_at, expires_at FROM ratelimit_resets
ORDER BY set_at DESC LIMIT ?;
