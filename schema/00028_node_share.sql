-- +goose Up
-- Renames the setting and the value of its default. The next migration changes existing rows.
ALTER TABLE ratelimit_namespaces
  CHANGE COLUMN headroom node_share VARCHAR(16) NOT NULL DEFAULT 'flush' COMMENT 'flush or wait';
