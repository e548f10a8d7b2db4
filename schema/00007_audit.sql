-- +goose Up
-- Who changed what, and why. Rows are only ever added.
CREATE TABLE IF NOT EXISTS ratelimit_audit (
  id            BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  at            BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  actor         VARCHAR(191)    NOT NULL,
  action        VARCHAR(64)     NOT NULL COMMENT 'e.g. cleanup.pause',
  subject       VARBINARY(800)  NOT NULL COMMENT 'what it was done to',
  reason        VARCHAR(500)    NOT NULL,
  before_state  TEXT            NOT NULL COMMENT 'JSON, empty for none',
  after_state   TEXT            NOT NULL COMMENT 'JSON, empty for none',
  PRIMARY KEY (id),
  KEY at_idx (at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
