-- Statements on the counts that regions share, as nodes run them.

-- name: WindowCountUpsert :exec
-- Raises one component; a smaller count changes nothing but `shared`, which stays true
-- once it is. `count` comes last: assignments run from left to right, and the others
-- must compare with the stored one.
-- The multi-row form in mysqlcounts repeats this statement's VALUES tuple.
-- The clock is seconds since 1970, which know no time zone, and the milliseconds of
-- the same instant: NOW() alone is read back wrong in the hour that a zone has twice.
-- A clock that has gone back lowers no stamp. A quiet row has the stamp 0, which no
-- import by cursor comes to; the first one that is not quiet stamps it, raised or not.
INSERT INTO ratelimit_window_counts
  (workspace_id, namespace, identifier, duration_ms, sequence, region, count, counted_at, shared, expires_at, updated_at)
VALUES (sqlc.arg(workspace_id), sqlc.arg(namespace), sqlc.arg(identifier), sqlc.arg(duration_ms), sqlc.arg(sequence),
  sqlc.arg(region), sqlc.arg(count), sqlc.arg(counted_at), sqlc.arg(shared), sqlc.arg(expires_at),
  IF(sqlc.arg(quiet), 0, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000))
ON DUPLICATE KEY UPDATE
  updated_at = IF(VALUES(count) > count OR updated_at = 0, GREATEST(updated_at, VALUES(updated_at)), updated_at),
  counted_at = IF(VALUES(count) > count, VALUES(counted_at), counted_at),
  shared = GREATEST(shared, VALUES(shared)),
  count = GREATEST(count, VALUES(count));

-- name: WindowCountTouch :exec
-- The same, and the row is stamped anew whether its count grows or not: for rows that
-- became visible so long after their stamp that an import may have overlooked them.
INSERT INTO ratelimit_window_counts
  (workspace_id, namespace, identifier, duration_ms, sequence, region, count, counted_at, shared, expires_at, updated_at)
VALUES (sqlc.arg(workspace_id), sqlc.arg(namespace), sqlc.arg(identifier), sqlc.arg(duration_ms), sqlc.arg(sequence),
  sqlc.arg(region), sqlc.arg(count), sqlc.arg(counted_at), sqlc.arg(shared), sqlc.arg(expires_at),
  IF(sqlc.arg(quiet), 0, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000))
ON DUPLICATE KEY UPDATE
  updated_at = GREATEST(updated_at, VALUES(updated_at)),
  counted_at = IF(VALUES(count) > count, VALUES(counted_at), counted_at),
  shared = GREATEST(shared, VALUES(shared)),
  count = GREATEST(count, VALUES(count));

-- name: WindowCountsImport :many
-- Every cell that is still alive: the sum of other regions' components, the region's
-- own, and of the others the one with the youngest cost: its counted_at in 20 digits,
-- then its region. It reads the primary key in order, so that grouping needs neither a
-- temporary table nor a sort; when few of the rows are alive, planners go by
-- expires_at_idx instead, and sort what little they find.
SELECT workspace_id, namespace, identifier, duration_ms, sequence,
       CAST(COALESCE(SUM(CASE WHEN region <> sqlc.arg(region) THEN count END), 0) AS SIGNED) AS foreign_count,
       CAST(COALESCE(MAX(CASE WHEN region =  sqlc.arg(region) THEN count END), 0) AS SIGNED) AS own_count,
       CAST(MAX(CASE WHEN region <> sqlc.arg(region) THEN CONCAT(LPAD(counted_at, 20, '0'), region) END) AS BINARY) AS newest
FROM ratelimit_window_counts
WHERE expires_at > sqlc.arg(now_ms)
GROUP BY workspace_id, namespace, identifier, duration_ms, sequence;

-- name: WindowCountsImportSince :many
-- The same, of the cells in which a component was raised since a moment. Components of
-- one region count as unchanged (none, if that is ''). What has changed is read from
-- the end of updated_at_idx, which holds the primary key too: the table itself is read
-- for the cells found there and for no others, and the joins' order must not be turned
-- round.
SELECT c.workspace_id, c.namespace, c.identifier, c.duration_ms, c.sequence,
       CAST(COALESCE(SUM(CASE WHEN c.region <> sqlc.arg(region) THEN c.count END), 0) AS SIGNED) AS foreign_count,
       CAST(COALESCE(MAX(CASE WHEN c.region =  sqlc.arg(region) THEN c.count END), 0) AS SIGNED) AS own_count,
       CAST(MAX(CASE WHEN c.region <> sqlc.arg(region) THEN CONCAT(LPAD(c.counted_at, 20, '0'), c.region) END) AS BINARY) AS newest
FROM (
  SELECT DISTINCT w.workspace_id, w.namespace, w.identifier, w.duration_ms, w.sequence
  FROM ratelimit_window_counts AS w FORCE INDEX (updated_at_idx)
  WHERE w.updated_at >= sqlc.arg(since_ms) AND w.region <> sqlc.arg(unchanged_region)
) AS raised
STRAIGHT_JOIN ratelimit_window_counts AS c FORCE INDEX (PRIMARY)
  ON  c.workspace_id = raised.workspace_id AND c.namespace = raised.namespace AND c.identifier = raised.identifier
  AND c.duration_ms = raised.duration_ms AND c.sequence = raised.sequence
WHERE c.expires_at > sqlc.arg(now_ms)
GROUP BY c.workspace_id, c.namespace, c.identifier, c.duration_ms, c.sequence;

-- name: DatabaseNow :one
SELECT CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms;

-- name: ReplicaPosition :one
-- How far a replica has come: the newest stamp that it holds and that is not in the
-- future, of counts or of a heartbeat of the region. Two reads of one entry each.
SELECT CAST(GREATEST(
  COALESCE((SELECT MAX(w.updated_at) FROM ratelimit_window_counts w WHERE w.updated_at <= sqlc.arg(now_ms)), 0),
  COALESCE((SELECT MAX(n.seen_at) FROM ratelimit_nodes n WHERE n.region = sqlc.arg(region) AND n.seen_at <= sqlc.arg(now_ms)), 0)
) AS SIGNED) AS position_ms;
