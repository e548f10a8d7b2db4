-- +goose Up
-- Versions of the tuning document, never changed once written. A region runs the
-- newest version written for it, or the fleet's (region '') where it has none.
-- Versions are unique across all regions, so that "which is newer" has one answer.
--
-- write_id makes a version that a rollout writes be written once, however often the write
-- is tried and however late an attempt that was given up arrives. Of two writes over the same
-- version, which did not know of each other, replaces lets the second fail. Versions that
-- something else wrote have neither.
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
