-- +goose Up
-- What fences the renames and drops of a retirement: an attempt that carries a lower
-- number than the highest one seen here was given up, and does nothing.
CREATE TABLE IF NOT EXISTS ratelimit_retirements (
  name  VARBINARY(64)   NOT NULL COMMENT 'of the table that is retired',
  fence BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
