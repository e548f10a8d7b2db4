-- +goose Up
-- What makes a version that a rollout writes be written once, however often the write is
-- tried and however late an attempt that was given up arrives. Versions that something
-- else wrote have none.
ALTER TABLE ratelimit_tuning
  ADD COLUMN write_id VARBINARY(128) NULL DEFAULT NULL COMMENT 'rollout, direction and region',
  ADD UNIQUE KEY write_idx (write_id);
