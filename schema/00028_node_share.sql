-- +goose Up
-- The setting has another name, and another word for its default: see the next migration.
ALTER TABLE ratelimit_namespaces
  CHANGE COLUMN headroom node_share VARCHAR(16) NOT NULL DEFAULT 'flush' COMMENT 'flush or wait';
