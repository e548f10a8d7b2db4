-- Fences of retirements. The statements that rename and drop the table are in Go, because a placeholder cannot stand for
-- a table's name.

-- name: RetirementFenceRaise :exec
INSERT INTO ratelimit_retirements (name, fence) VALUES (?, ?)
ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence));

-- name: RetirementFence :one
SELECT fence FROM ratelimit_retirements WHERE name = ?;
