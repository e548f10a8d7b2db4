-- +goose Up
-- Versions of the tuning document, never changed once written. A region runs the
-- newest version written for it, or the fleet's (region '') where it has none.
-- Versions are unique across all regions, so that "which is newer" has one answer.
CREATE TABLE IF NOT EXISTS ratelimit_tuning (
  version    BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  region     VARBINARY(48)   NOT NULL COMMENT 'empty: the whole fleet',
  document   TEXT            NOT NULL COMMENT 'JSON, see package tuning',
  actor      VARCHAR(191)    NOT NULL,
  reason     VARCHAR(500)    NOT NULL,
  created_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  PRIMARY KEY (version),
  KEY region_idx (region, version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
