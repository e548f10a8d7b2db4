-- +goose Up
-- Together with expires_at, the class determines a row's partition. It follows from duration_ms, so it can be a part of
-- the primary key.
ALTER TABLE ratelimit_window_counts
  ADD COLUMN expiry_class TINYINT UNSIGNED NOT NULL DEFAULT 0
    COMMENT '0: windows of at most 12 hours, 1: of at most 31 days, 2: longer ones';
