-- +goose Up
-- Changes the default so that a burst on several nodes passes only once: a decision beyond its node share waits for Redis.
ALTER TABLE ratelimit_namespaces
  ALTER COLUMN node_share SET DEFAULT 'wait';
