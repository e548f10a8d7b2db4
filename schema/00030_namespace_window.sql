-- +goose Up
-- The kind of a namespace's windows. The column is not named window, because that is a reserved word of MySQL 8.
ALTER TABLE ratelimit_namespaces
  ADD COLUMN window_kind VARCHAR(16) NOT NULL DEFAULT 'cells' COMMENT 'cells or precise';
