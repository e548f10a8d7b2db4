-- name: FleetNodes :many
-- Returns every node that has not withdrawn its row, and the clock of the database for the age of its last heartbeat.
SELECT node_id, region, build, tuning_version, started_at, sent_at, seen_at, health,
       CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms
FROM ratelimit_nodes WHERE seen_at > 0 ORDER BY region, node_id LIMIT ?;

-- name: FleetNodesLeft :many
-- Returns nodes that have recently withdrawn their rows, by the clock of the database. The cleanup deletes the rows later.
SELECT node_id, region FROM ratelimit_nodes
WHERE seen_at = 0 AND sent_at > UNIX_TIMESTAMP() * 1000 - CAST(sqlc.arg(within_ms) AS SIGNED)
ORDER BY region, node_id LIMIT ?;

-- name: NodesSetRight :execrows
-- Corrects heartbeats after the clock of the database has stepped back. Earlier heartbeats are then ahead of the clock,
-- so a dead node would count as live until the clock reaches them. With the current time, heartbeats age again. Live
-- nodes replace their heartbeats within seconds.
UPDATE ratelimit_nodes SET seen_at = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000
WHERE seen_at > UNIX_TIMESTAMP() * 1000 + CAST(sqlc.arg(ahead_ms) AS SIGNED);

-- name: FleetTopKeys :many
-- Returns the keys that nodes with a recent heartbeat reported, the newest heartbeat first.
SELECT node_id, region, sent_at, seen_at, top_keys,
       CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms
FROM ratelimit_nodes
WHERE top_keys IS NOT NULL AND seen_at > UNIX_TIMESTAMP() * 1000 - CAST(sqlc.arg(within_ms) AS SIGNED)
ORDER BY seen_at DESC, node_id LIMIT ?;

-- name: DatabaseNow :one
SELECT CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms;
