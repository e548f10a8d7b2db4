-- What fences a retirement. The statements about the table itself are not here: they
-- name it, and no placeholder can.

-- name: RetirementFenceRaise :exec
INSERT INTO ratelimit_retirements (name, fence) VALUES (?, ?)
ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence));

-- name: RetirementFence :one
SELECT fence FROM ratelimit_retirements WHERE name = ?;
