-- +goose Up
-- The audit log: each change, its actor and its reason. Rows are only added. write_id ensures that
-- an entry of durable work is written once, even if the write is retried. Entries that are
-- written in the same transaction as their change have none.
CREATE TABLE IF NOT EXISTS ratelimit_audit (
  id            BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  at            BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  actor         VARCHAR(191)    NOT NULL,
  action        VARCHAR(64)     NOT NULL COMMENT 'e.g. cleanup.pause',
  subject       VARBINARY(800)  NOT NULL COMMENT 'what it was done to',
  reason        VARCHAR(500)    NOT NULL,
  before_state  TEXT            NOT NULL COMMENT 'JSON, empty for none',
  after_state   TEXT            NOT NULL COMMENT 'JSON, empty for none',
  write_id      VARBINARY(128)  NULL DEFAULT NULL COMMENT 'of the message that brought the entry',
  PRIMARY KEY (id),
  KEY at_idx (at),
  UNIQUE KEY write_idx (write_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
