-- name: FleetNodes :many
-- Every node with the age of its last heartbeat by the database's own clock.
SELECT node_id, region, build, tuning_version, started_at, sent_at, seen_at, health,
       CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms
FROM ratelimit_nodes ORDER BY region, node_id LIMIT ?;

-- name: DatabaseNow :one
SELECT CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms;
