-- +goose Up
-- For each rollout that is done, the preview's prediction and the measured figures. A row never changes.
CREATE TABLE IF NOT EXISTS ratelimit_rollout_promises (
  id       VARBINARY(64)   NOT NULL COMMENT 'of the rollout',
  ended_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of weir-control',
  figures  TEXT            NOT NULL COMMENT 'JSON, see controlplane.Promise',
  PRIMARY KEY (id),
  KEY ended_idx (ended_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
