-- +goose Up
-- The keys of which a node has most to tell. A row of the release before has none.
ALTER TABLE ratelimit_nodes
  ADD COLUMN top_keys BLOB NULL DEFAULT NULL COMMENT 'JSON, see package heartbeat; at most 16 KiB';
