-- name: NodeBeat :exec
-- Stores a node's heartbeat in place of its previous heartbeat. Top keys stay if the heartbeat has none. age_ms is the
-- time since the heartbeat was sent.
--
-- The last heartbeat of a node that stops (stopped = 1) withdraws its row by seen_at 0. Readers skip a withdrawn row, and
-- the cleanup deletes it, because nodes may not. Earlier heartbeats of the same process cannot restore the row. The
-- sent_at of a withdrawn row uses the clock of the database, because the control plane compares it with that clock.
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
-- Counts the nodes of a region with a recent heartbeat. region_idx has all columns that it reads.
SELECT CAST(COUNT(*) AS SIGNED) AS nodes FROM ratelimit_nodes
WHERE region = ? AND seen_at > UNIX_TIMESTAMP() * 1000 - CAST(sqlc.arg(within_ms) AS SIGNED);
