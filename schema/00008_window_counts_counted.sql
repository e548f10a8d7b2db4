-- +goose Up
-- When the newest cost in a count was accepted, and whether its region knew that
-- another one uses the key too. Nodes of the release before write neither.
ALTER TABLE ratelimit_window_counts
  ADD COLUMN counted_at BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'Unix ms by the clock of the node that published count; 0 unknown',
  ADD COLUMN shared     BOOLEAN         NOT NULL DEFAULT FALSE COMMENT 'another region was known to use this key';
