-- What regions have accepted, as relays store and read it.

-- name: WindowCountUpsert :exec
-- Raises one component; a smaller count changes nothing. `count` comes last: assignments
-- run from left to right, and updated_at must compare with the stored one.
-- The multi-row form in mysqlcounts repeats this statement's VALUES tuple.
-- The clock is seconds since 1970, which know no time zone, and the milliseconds of
-- the same instant: NOW() alone is read back wrong in the hour that a zone has twice.
INSERT INTO ratelimit_window_counts
  (workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, expiry_class, updated_at)
VALUES (sqlc.arg(workspace_id), sqlc.arg(namespace), sqlc.arg(identifier), sqlc.arg(duration_ms), sqlc.arg(sequence),
  sqlc.arg(region), sqlc.arg(count), sqlc.arg(expires_at), sqlc.arg(expiry_class), UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000)
ON DUPLICATE KEY UPDATE
  updated_at = IF(VALUES(count) > count, VALUES(updated_at), updated_at),
  count = GREATEST(count, VALUES(count));

-- name: WindowCountsImport :many
-- Every component of the cells that are still alive, in whatever order the index has that
-- the planner takes: the primary key's, or expires_at_idx when few of the rows are alive. The classes, which are all
-- there are, let it leave out the partitions of what has expired.
SELECT workspace_id, namespace, identifier, duration_ms, sequence, region, count
FROM ratelimit_window_counts
WHERE expiry_class IN (0, 1, 2) AND expires_at > sqlc.arg(now_ms);
