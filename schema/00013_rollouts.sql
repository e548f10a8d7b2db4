-- +goose Up
-- Rollouts that began, one row each. The row is written before the rollout exists in Restate. So if Restate's data is
-- lost, the rows still name every rollout under way, including rollouts that have written no version yet.
CREATE TABLE IF NOT EXISTS ratelimit_rollouts (
  id         VARBINARY(64)   NOT NULL,
  actor      VARCHAR(191)    NOT NULL,
  reason     VARCHAR(500)    NOT NULL,
  started_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of weir-control',
  PRIMARY KEY (id),
  KEY started_idx (started_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
