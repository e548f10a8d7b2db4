-- +goose Up
-- The newest heartbeat of each node.
CREATE TABLE IF NOT EXISTS ratelimit_nodes (
  node_id        VARBINARY(64)   NOT NULL,
  region         VARBINARY(48)   NOT NULL,
  build          VARCHAR(64)     NOT NULL,
  tuning_version BIGINT UNSIGNED NOT NULL,
  started_at     BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the node',
  sent_at        BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the node',
  seen_at        BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  health         TEXT            NOT NULL COMMENT 'JSON, see package heartbeat',
  top_keys       BLOB            NULL DEFAULT NULL COMMENT 'JSON, see package heartbeat; at most 16 KiB',
  PRIMARY KEY (node_id),
  KEY region_idx (region, seen_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
