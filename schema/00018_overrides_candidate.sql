-- +goose Up
-- What is tried out on what a pattern matches. A row of the release before tries nothing.
ALTER TABLE ratelimit_overrides
  ADD COLUMN candidate BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'limit that is judged beside the other and decides nothing; 0 for none',
  ADD COLUMN shadow    BOOLEAN         NOT NULL DEFAULT FALSE COMMENT 'lets denied requests pass';
