-- +goose Up
-- Identifiers whose counts from before set_at are ignored. A row is deleted when earlier counts
-- can no longer matter. Until then its time only rises.
CREATE TABLE IF NOT EXISTS ratelimit_resets (
  workspace_id VARBINARY(191)    NOT NULL,
  namespace    VARBINARY(255)    NOT NULL,
  identifier   VARBINARY(255)    NOT NULL,
  generation   SMALLINT UNSIGNED NOT NULL COMMENT '1 to 32767, names the cells that count since',
  set_at       BIGINT UNSIGNED   NOT NULL COMMENT 'Unix ms by the clock of the database',
  expires_at   BIGINT UNSIGNED   NOT NULL COMMENT 'Unix ms by the clock of the database',
  PRIMARY KEY (workspace_id, namespace, identifier),
  KEY set_at_idx (set_at),
  KEY expires_at_idx (expires_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
