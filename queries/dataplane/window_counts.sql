-- Accepted cost of regions, stored and read by relays.

-- name: WindowCountUpsert :exec
-- Raises one region's count of a cell. A smaller count changes nothing. `count` must be assigned last, because
-- assignments run from left to right and updated_at compares with the stored count.
-- The multi-row form in mysqlcounts repeats this statement's VALUES tuple.
-- The clock is the seconds since 1970, which have no time zone, plus the milliseconds of the same instant. NOW() alone
-- would be wrong in the hour that a time zone has twice.
INSERT INTO ratelimit_window_counts
  (workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, expiry_class, updated_at)
VALUES (sqlc.arg(workspace_id), sqlc.arg(namespace), sqlc.arg(identifier), sqlc.arg(duration_ms), sqlc.arg(sequence),
  sqlc.arg(region), sqlc.arg(count), sqlc.arg(expires_at), sqlc.arg(expiry_class), UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000)
ON DUPLICATE KEY UPDATE
  updated_at = IF(VALUES(count) > count, VALUES(updated_at), updated_at),
  count = GREATEST(count, VALUES(count));

-- name: WindowCountsImport :many
-- Returns every region's count of all live cells, in the order of the index that the planner chooses: the primary key,
-- or expires_at_idx if few rows are live. The condition names all classes, so the planner can skip the partitions of
-- expired rows. age_ms is the time since the count last grew, by the clock of the database, which may be wrong.
SELECT workspace_id, namespace, identifier, duration_ms, sequence, region, count,
  CAST(CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) - CAST(updated_at AS SIGNED) AS SIGNED)
    AS age_ms
FROM ratelimit_window_counts
WHERE expiry_class IN (0, 1, 2) AND expires_at > sqlc.arg(now_ms);
