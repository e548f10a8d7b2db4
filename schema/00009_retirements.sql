-- +goose Up
-- The fences of a retirement's renames and drops. An attempt with a lower number than the
-- highest number stored here was abandoned, and does nothing.
CREATE TABLE IF NOT EXISTS ratelimit_retirements (
  name  VARBINARY(64)   NOT NULL COMMENT 'of the table that is retired',
  fence BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
