-- +goose Up
-- The table through which verdicts were shared before counts were: still there in
-- fleets that come from that design, in which case it is left as it is. Nodes
-- neither read nor write it; its rows are expired until it is retired.
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
