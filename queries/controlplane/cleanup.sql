-- Statements that delete expired rows. Each has a cutoff and a bound.

-- name: WindowCountsDeleteExpired :execrows
-- Deletes the oldest rows first. The order also keeps the statement on expires_at_idx, even if the planner overestimates
-- the share of expired rows. A scan of the primary key would lock live rows.
DELETE FROM ratelimit_window_counts WHERE expires_at < sqlc.arg(cutoff_ms) ORDER BY expires_at LIMIT ?;

-- name: WindowCountsDeleteUndated :execrows
-- Deletes only rows that are in no partition of an hour or a day.
DELETE FROM ratelimit_window_counts PARTITION (h_later, d_later, later)
WHERE expires_at < sqlc.arg(cutoff_ms) ORDER BY expires_at LIMIT ?;

-- name: WindowCountsOldestUndated :one
-- Returns 0 if there are no such rows. Reads one entry of expires_at_idx for each partition.
SELECT CAST(COALESCE(MIN(expires_at), 0) AS SIGNED) AS oldest_ms
FROM ratelimit_window_counts PARTITION (h_later, d_later, later);

-- name: WindowCountsOldestExpiry :one
-- Returns 0 if the table is empty. Reads one entry of expires_at_idx.
SELECT CAST(COALESCE(MIN(expires_at), 0) AS SIGNED) AS oldest_ms FROM ratelimit_window_counts;

-- name: BlocklistDeleteExpired :execrows
DELETE FROM ratelimit_blocklist WHERE expires_at < sqlc.arg(cutoff_ms) ORDER BY expires_at LIMIT ?;

-- name: NodesDeleteDead :execrows
-- Deletes the rows of dead nodes. A withdrawn row (seen_at = 0) stays as long after its last heartbeat was sent, so that
-- rollouts can read it.
DELETE FROM ratelimit_nodes WHERE seen_at < sqlc.arg(cutoff_ms) AND (seen_at > 0 OR sent_at < sqlc.arg(cutoff_ms)) LIMIT ?;

-- name: UsageDeleteOld :execrows
-- Deletes the oldest hours first. The order keeps the statement on hour_idx.
DELETE FROM ratelimit_usage WHERE hour_at < sqlc.arg(cutoff_ms) ORDER BY hour_at LIMIT ?;

-- name: UsageReportsDeleteOld :execrows
-- Deletes the totals of processes that have ended. A process that reports again after that is not counted twice: see
-- heartbeat.UsageForgottenAfter.
DELETE FROM ratelimit_usage_reports WHERE seen_at < sqlc.arg(cutoff_ms) ORDER BY seen_at LIMIT ?;
