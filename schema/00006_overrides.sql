-- +goose Up
-- Limits of single identifiers, or of all identifiers that a pattern with '*' matches.
CREATE TABLE IF NOT EXISTS ratelimit_overrides (
  workspace_id VARBINARY(191)  NOT NULL,
  namespace    VARBINARY(255)  NOT NULL,
  pattern      VARBINARY(255)  NOT NULL,
  `limit`      BIGINT UNSIGNED NOT NULL COMMENT '0 blocks',
  duration_ms  BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0 keeps the duration of the request',
  candidate    BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'limit that is judged beside the other and decides nothing; 0 for none',
  shadow       BOOLEAN         NOT NULL DEFAULT FALSE COMMENT 'lets denied requests pass',
  updated_at   BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  PRIMARY KEY (workspace_id, namespace, pattern)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
