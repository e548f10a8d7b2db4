-- What operators have ordered of jobs.

-- name: JobStateSave :exec
-- A state with the same number or a higher one stays. Assignments are from left to right: state compares with the
-- number before.
INSERT INTO ratelimit_job_states (name, saved, state) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE state = IF(VALUES(saved) > saved, VALUES(state), state), saved = GREATEST(saved, VALUES(saved));

-- name: JobState :one
SELECT saved, state FROM ratelimit_job_states WHERE name = ?;
