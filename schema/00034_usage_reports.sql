-- +goose Up
-- The newest totals that each process has reported, all of which ratelimit_usage has. The next report of the process adds
-- only its difference to them.
CREATE TABLE IF NOT EXISTS ratelimit_usage_reports (
  node_id    VARBINARY(64)   NOT NULL,
  started_at BIGINT UNSIGNED NOT NULL COMMENT 'start of the process, Unix ms by the clock of the node',
  number     BIGINT UNSIGNED NOT NULL COMMENT 'of the report, ascending within the process',
  seen_at    BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  totals     BLOB            NOT NULL COMMENT 'JSON, see package heartbeat; at most 32 KiB',
  PRIMARY KEY (node_id, started_at),
  KEY seen_idx (seen_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
