-- Statements that add reports of accepted and denied cost to the usage of namespaces. UsageClaim, UsageLock, UsageAdd and
-- UsageStore are one transaction, so each report is counted once.

-- name: UsageNumbers :many
-- Returns which report of each process is counted. The predicate is repeated for each process.
SELECT node_id, started_at, number FROM ratelimit_usage_reports
WHERE (node_id = ? AND started_at = ?);

-- name: UsageClaim :exec
-- Creates the rows of processes that report for the first time, and locks the rows of all.
INSERT INTO ratelimit_usage_reports (node_id, started_at, number, seen_at, totals)
VALUES (?, ?, 0, 0, '')
ON DUPLICATE KEY UPDATE number = number;

-- name: UsageLock :many
-- Returns the counted totals of processes, and the clock of the database. The predicate is repeated for each process.
SELECT node_id, started_at, number, totals,
       CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS now_ms
FROM ratelimit_usage_reports
WHERE (node_id = ? AND started_at = ?)
FOR UPDATE;

-- name: UsageAdd :exec
-- Adds to an hour. No sum passes 2^62 - 1, whatever nodes report.
INSERT INTO ratelimit_usage (workspace_id, namespace, hour_at, region, accepted, denied)
VALUES (?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
  accepted = LEAST(accepted + VALUES(accepted), 4611686018427387903),
  denied = LEAST(denied + VALUES(denied), 4611686018427387903);

-- name: UsageStore :exec
-- Stores the totals that are counted now.
INSERT INTO ratelimit_usage_reports (node_id, started_at, number, seen_at, totals)
VALUES (?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE number = VALUES(number), seen_at = VALUES(seen_at), totals = VALUES(totals);
