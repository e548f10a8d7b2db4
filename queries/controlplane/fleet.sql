-- name: FleetNodes :many
-- Every node that has not withdrawn itself, with the age of its last heartbeat by the database's
-- own clock.
SELECT node_id, region, build, tuning_version, started_at, sent_at, seen_at, health,
       CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms
FROM ratelimit_nodes WHERE seen_at > 0 ORDER BY region, node_id LIMIT ?;

-- name: FleetNodesLeft :many
-- Nodes that have withdrawn themselves lately, by the clock of the database; cleanup deletes their rows later.
SELECT node_id, region FROM ratelimit_nodes
WHERE seen_at = 0 AND sent_at > UNIX_TIMESTAMP() * 1000 - CAST(sqlc.arg(within_ms) AS SIGNED)
ORDER BY region, node_id LIMIT ?;

-- name: NodesSetRight :execrows
-- After the clock of the database has stepped back, heartbeats from before are ahead of it: a node that has died would
-- count as live until the clock reaches them. From now on they age again. Live nodes replace theirs in seconds.
UPDATE ratelimit_nodes SET seen_at = UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000
WHERE seen_at > UNIX_TIMESTAMP() * 1000 + CAST(sqlc.arg(ahead_ms) AS SIGNED);

-- name: FleetTopKeys :many
-- The keys that nodes with a recent heartbeat reported, the newest heartbeat first.
SELECT node_id, region, sent_at, seen_at, top_keys,
       CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms
FROM ratelimit_nodes
WHERE top_keys IS NOT NULL AND seen_at > UNIX_TIMESTAMP() * 1000 - CAST(sqlc.arg(within_ms) AS SIGNED)
ORDER BY seen_at DESC, node_id LIMIT ?;

-- name: DatabaseNow :one
SELECT CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms;
