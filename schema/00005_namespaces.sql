-- +goose Up
-- What operators have set for a namespace; one that has no row runs the defaults.
CREATE TABLE IF NOT EXISTS ratelimit_namespaces (
  workspace_id VARBINARY(191)  NOT NULL,
  namespace    VARBINARY(255)  NOT NULL,
  shadow       BOOLEAN         NOT NULL DEFAULT FALSE,
  updated_at   BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  PRIMARY KEY (workspace_id, namespace)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
