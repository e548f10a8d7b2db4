-- name: NodeBeat :exec
-- A node's word about itself, replacing its earlier one; top keys only where it has some
-- to tell. The last word of one that stops (stopped = 1) withdraws its row: seen_at 0 is never
-- read, and cleanup deletes it, which nodes may not. Nothing that the same process sent before
-- brings it back. age_ms is how long ago it was sent. The sent_at of a withdrawn row is by the
-- clock of the database, with which the control plane compares it.
INSERT INTO ratelimit_nodes
  (node_id, region, build, tuning_version, started_at, sent_at, seen_at, health, top_keys)
VALUES (?, ?, ?, ?, ?, ?, (1 - CAST(sqlc.arg(stopped) AS SIGNED)) * (UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 - CAST(sqlc.arg(age_ms) AS SIGNED)), ?, ?)
ON DUPLICATE KEY UPDATE
  seen_at = IF(seen_at = 0 AND started_at = VALUES(started_at), 0, VALUES(seen_at)),
  region = VALUES(region), build = VALUES(build), tuning_version = VALUES(tuning_version),
  started_at = VALUES(started_at),
  sent_at = IF(seen_at > 0, VALUES(sent_at), IF(VALUES(seen_at) > 0, sent_at, UNIX_TIMESTAMP() * 1000)),
  health = VALUES(health),
  top_keys = COALESCE(VALUES(top_keys), top_keys);

-- name: NodesLive :one
-- How many nodes of a region were heard of lately; region_idx answers it by itself.
SELECT CAST(COUNT(*) AS SIGNED) AS nodes FROM ratelimit_nodes
WHERE region = ? AND seen_at > UNIX_TIMESTAMP() * 1000 - CAST(sqlc.arg(within_ms) AS SIGNED);
