-- +goose Up
-- The table through which regions shared verdicts before they shared counts. If a fleet of
-- that design has the table, it stays unchanged. Nodes neither read nor write it. Until the
-- table is retired, the control plane deletes its expired rows.
CREATE TABLE IF NOT EXISTS ratelimit_blocklist (
  pk           BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  workspace_id VARCHAR(191)    NOT NULL,
  namespace    VARCHAR(255)    NOT NULL,
  identifier   VARCHAR(255)    NOT NULL,
  duration_ms  BIGINT UNSIGNED NOT NULL,
  sequence     BIGINT          NOT NULL,
  `limit`      BIGINT UNSIGNED NOT NULL,
  expires_at   BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms',
  PRIMARY KEY (pk),
  UNIQUE KEY unique_propagation_key (workspace_id, namespace, identifier, duration_ms, sequence),
  KEY expires_at_idx (expires_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
