-- name: NodeBeat :exec
-- A node's word about itself, replacing its earlier one.
INSERT INTO ratelimit_nodes
  (node_id, region, build, tuning_version, started_at, sent_at, seen_at, health)
VALUES (?, ?, ?, ?, ?, ?, ROUND(UNIX_TIMESTAMP(NOW(3)) * 1000), ?)
ON DUPLICATE KEY UPDATE
  region = VALUES(region), build = VALUES(build), tuning_version = VALUES(tuning_version),
  started_at = VALUES(started_at), sent_at = VALUES(sent_at), seen_at = VALUES(seen_at), health = VALUES(health);
