-- +goose Up
-- How each rollout stands, so that one goes on that Restate has lost or has an older state of. The state is written
-- before what follows from it, each time with a higher number: of two states the one that was saved more often counts.
ALTER TABLE ratelimit_rollouts
  ADD COLUMN saved BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'how often the state was saved; 0 never',
  ADD COLUMN phase VARCHAR(32)     NOT NULL DEFAULT '' COMMENT 'of the state; empty where there is none',
  ADD COLUMN state MEDIUMTEXT      NULL DEFAULT NULL COMMENT 'JSON, see Rollout in package controlplane';
