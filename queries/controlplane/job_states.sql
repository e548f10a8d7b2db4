-- Operators' orders for jobs.

-- name: JobStateSave :exec
-- Stores a state unless the stored state has the same number or a higher number. Assignments run from left to right, so
-- state compares with the stored number.
INSERT INTO ratelimit_job_states (name, saved, state) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE state = IF(VALUES(saved) > saved, VALUES(state), state), saved = GREATEST(saved, VALUES(saved));

-- name: JobState :one
SELECT saved, state FROM ratelimit_job_states WHERE name = ?;
