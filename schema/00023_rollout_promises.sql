-- +goose Up
-- What previews say of rollouts that are done, beside what was measured of them: one row each, never changed.
CREATE TABLE IF NOT EXISTS ratelimit_rollout_promises (
  id       VARBINARY(64)   NOT NULL COMMENT 'of the rollout',
  ended_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of weir-control',
  figures  TEXT            NOT NULL COMMENT 'JSON, see controlplane.Promise',
  PRIMARY KEY (id),
  KEY ended_idx (ended_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
