-- Statements that delete what has expired. Each names a cutoff and a bound.

-- name: WindowCountsDeleteExpired :execrows
-- Oldest first. The order also keeps the statement on expires_at_idx, whatever a
-- planner believes about the share of rows that have expired: a walk of the primary
-- key would lock live rows on its way.
DELETE FROM ratelimit_window_counts WHERE expires_at < sqlc.arg(cutoff_ms) ORDER BY expires_at LIMIT ?;

-- name: WindowCountsDeleteUndated :execrows
-- The same of rows that are in no partition of an hour or a day.
DELETE FROM ratelimit_window_counts PARTITION (h_later, d_later, later)
WHERE expires_at < sqlc.arg(cutoff_ms) ORDER BY expires_at LIMIT ?;

-- name: WindowCountsOldestUndated :one
-- 0 when there are none. Reads one entry of expires_at_idx for each partition.
SELECT CAST(COALESCE(MIN(expires_at), 0) AS SIGNED) AS oldest_ms
FROM ratelimit_window_counts PARTITION (h_later, d_later, later);

-- name: WindowCountsOldestExpiry :one
-- 0 when the table is empty. Reads one entry of expires_at_idx.
SELECT CAST(COALESCE(MIN(expires_at), 0) AS SIGNED) AS oldest_ms FROM ratelimit_window_counts;

-- name: BlocklistDeleteExpired :execrows
DELETE FROM ratelimit_blocklist WHERE expires_at < sqlc.arg(cutoff_ms) ORDER BY expires_at LIMIT ?;

-- name: NodesDeleteDead :execrows
-- A node that has withdrawn itself (seen_at = 0) stays as long after it sent that, so that rollouts can read it.
DELETE FROM ratelimit_nodes WHERE seen_at < sqlc.arg(cutoff_ms) AND (seen_at > 0 OR sent_at < sqlc.arg(cutoff_ms)) LIMIT ?;
