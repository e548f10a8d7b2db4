-- What operators have set, as nodes read it.

-- name: TuningForRegion :many
-- The newest version for the region and the newest for the fleet; a region's own
-- one wins, whichever is newer.
SELECT version, region, document FROM ratelimit_tuning
WHERE version IN (
  SELECT MAX(t.version) FROM ratelimit_tuning t
  WHERE t.region = sqlc.arg(region) OR t.region = ''
  GROUP BY t.region
);

-- name: TrialsForRegion :many
-- The newest trial for the region, and that for regions without a tuning or a trial of their own, unless it has ended.
SELECT number, region, document, below, over_version,
  CAST(ends_at AS SIGNED) - CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS left_ms
FROM ratelimit_trials
WHERE number IN (
  SELECT MAX(t.number) FROM ratelimit_trials t
  WHERE t.region = sqlc.arg(region) OR t.region = ''
  GROUP BY t.region
) AND ends_at > UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000;

-- name: Namespaces :many
SELECT workspace_id, namespace, CAST(shadow <> 0 AS SIGNED) AS shadow, mode, outage, node_share, estimate
FROM ratelimit_namespaces;

-- name: Overrides :many
SELECT workspace_id, namespace, pattern, `limit`, duration_ms, candidate, CAST(shadow <> 0 AS SIGNED) AS shadow
FROM ratelimit_overrides;

-- name: Resets :many
-- The newest first, so that of too many the oldest are left out.
SELECT workspace_id, namespace, identifier, generation, set_at, expires_at FROM ratelimit_resets
ORDER BY set_at DESC LIMIT ?;
