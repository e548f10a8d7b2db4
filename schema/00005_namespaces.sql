-- +goose Up
-- Operators' settings for a namespace: its way of counting, and its behavior in an outage. A
-- namespace without a row has the defaults.
CREATE TABLE IF NOT EXISTS ratelimit_namespaces (
  workspace_id VARBINARY(191)  NOT NULL,
  namespace    VARBINARY(255)  NOT NULL,
  shadow       BOOLEAN         NOT NULL DEFAULT FALSE COMMENT 'lets denied requests pass',
  mode         VARCHAR(16)     NOT NULL DEFAULT 'exact' COMMENT 'exact or estimate',
  outage       VARCHAR(16)     NOT NULL DEFAULT 'local' COMMENT 'local, open or closed',
  headroom     VARCHAR(16)     NOT NULL DEFAULT 'kick' COMMENT 'kick or wait',
  estimate     VARCHAR(4096)   NOT NULL DEFAULT '' COMMENT 'JSON: knobs of the estimate mode, empty for its defaults',
  updated_at   BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  PRIMARY KEY (workspace_id, namespace)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
