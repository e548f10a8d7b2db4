-- +goose Up
-- Rollouts that began, one row each. The row is written before the rollout exists in Restate, so a list
-- of rollouts that is lost finds every one that is under way, those that have written no version yet included.
CREATE TABLE IF NOT EXISTS ratelimit_rollouts (
  id         VARBINARY(64)   NOT NULL,
  actor      VARCHAR(191)    NOT NULL,
  reason     VARCHAR(500)    NOT NULL,
  started_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of weir-control',
  PRIMARY KEY (id),
  KEY started_idx (started_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
