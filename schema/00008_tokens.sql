-- +goose Up
-- Tokens for the operators' API. Only a hash of a token is stored. A token is random, so its
-- hash reveals nothing. The row of a revoked token stays, because the audit log names it.
CREATE TABLE IF NOT EXISTS ratelimit_tokens (
  name       VARBINARY(64)   NOT NULL COMMENT 'the actor in the audit log',
  hash       VARBINARY(32)   NOT NULL COMMENT 'SHA-256 of the token',
  role       VARCHAR(16)     NOT NULL COMMENT 'viewer, operator or admin',
  created_by VARCHAR(191)    NOT NULL,
  created_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  revoked_at BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'Unix ms by the clock of the database; 0 in force',
  PRIMARY KEY (name),
  UNIQUE KEY hash_idx (hash)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
