-- +goose Up
-- The state of each rollout. If Restate has lost a rollout, or has an older state, the rollout continues from this state.
-- A state is saved before it has any effect, each time with a higher number. Of two states, the state with the higher
-- number counts.
ALTER TABLE ratelimit_rollouts
  ADD COLUMN saved BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'how often the state was saved; 0 never',
  ADD COLUMN phase VARCHAR(32)     NOT NULL DEFAULT '' COMMENT 'of the state; empty where there is none',
  ADD COLUMN state MEDIUMTEXT      NULL DEFAULT NULL COMMENT 'JSON, see Rollout in package controlplane';
