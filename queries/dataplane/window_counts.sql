-- Statements on the counts that regions share, as nodes run them.

-- name: WindowCountUpsert :exec
-- Raises one component; a smaller count changes nothing. `updated_at` comes first:
-- assignments run from left to right, and it must compare with the stored count.
-- The multi-row form in mysqlcounts repeats this statement's VALUES tuple.
-- The clock is seconds since 1970, which know no time zone, and the milliseconds of
-- the same instant: NOW() alone is read back wrong in the hour that a zone has twice.
INSERT INTO ratelimit_window_counts
  (workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000)
ON DUPLICATE KEY UPDATE
  updated_at = IF(VALUES(count) > count, VALUES(updated_at), updated_at),
  count = GREATEST(count, VALUES(count));

-- name: WindowCountsImport :many
-- Every cell that is still alive: the sum of other regions' components, and the
-- region's own. It reads the primary key in order, so that grouping needs neither a
-- temporary table nor a sort; when few of the rows are alive, planners go by
-- expires_at_idx instead, and sort what little they find.
SELECT workspace_id, namespace, identifier, duration_ms, sequence,
       CAST(COALESCE(SUM(CASE WHEN region <> sqlc.arg(region) THEN count END), 0) AS SIGNED) AS foreign_count,
       CAST(COALESCE(MAX(CASE WHEN region =  sqlc.arg(region) THEN count END), 0) AS SIGNED) AS own_count
FROM ratelimit_window_counts
WHERE expires_at > sqlc.arg(now_ms)
GROUP BY workspace_id, namespace, identifier, duration_ms, sequence;
