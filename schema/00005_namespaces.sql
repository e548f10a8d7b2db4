-- +goose Up
-- What operators have set for a namespace; one that has no row runs the defaults.
CREATE TABLE ratelimit_namespaces (
  workspace_id VARBINARY(191)  NOT NULL,
  namespace    VARBINARY(255)  NOT NULL,
  shadow       BOOLEAN         NOT NULL DEFAULT FALSE,
  updated_at   BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  PRIMARY KEY (workspace_id, namespace)
);

-- +goose Down
DROP TABLE ratelimit_namespaces;
