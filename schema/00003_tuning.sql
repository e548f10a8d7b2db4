-- +goose Up
-- Versions of the tuning document. A version never changes after it was written. A region
-- runs the newest version for the region, or the fleet's newest version (region '') if it
-- has none. Versions are unique across all regions, so that any two can be ordered.
--
-- write_id ensures that a rollout's version is written once, even if the write is retried or an
-- abandoned attempt arrives late. If two writes replace the same version, replaces makes the
-- second write fail. Versions that no rollout wrote have neither.
CREATE TABLE IF NOT EXISTS ratelimit_tuning (
  version    BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  region     VARBINARY(48)   NOT NULL COMMENT 'empty: the whole fleet',
  document   TEXT            NOT NULL COMMENT 'JSON, see package tuning',
  actor      VARCHAR(191)    NOT NULL,
  reason     VARCHAR(500)    NOT NULL,
  created_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  write_id   VARBINARY(128)  NULL DEFAULT NULL COMMENT 'rollout, direction and region',
  replaces   BIGINT UNSIGNED NULL DEFAULT NULL COMMENT 'version of the region before, 0 for its first',
  PRIMARY KEY (version),
  KEY region_idx (region, version),
  UNIQUE KEY write_idx (write_id),
  UNIQUE KEY replaces_idx (region, replaces)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
