-- +goose Up
-- How a namespace counts and what it does in trouble. A row of the release before has
-- the defaults.
ALTER TABLE ratelimit_namespaces
  ADD COLUMN mode     VARCHAR(16)   NOT NULL DEFAULT 'exact' COMMENT 'exact or estimate',
  ADD COLUMN outage   VARCHAR(16)   NOT NULL DEFAULT 'local' COMMENT 'local, open or closed',
  ADD COLUMN headroom VARCHAR(16)   NOT NULL DEFAULT 'kick' COMMENT 'kick or wait',
  ADD COLUMN estimate VARCHAR(4096) NOT NULL DEFAULT '' COMMENT 'JSON: knobs of the estimate mode, empty for its defaults';
