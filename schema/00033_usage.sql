-- +goose Up
-- The cost that the nodes of a region accepted and denied in an hour, by namespace. The row with empty names has the cost
-- of all namespaces that a node had no room for. It exists for each hour in which a node of the region reported, so an
-- hour without it is unknown.
CREATE TABLE IF NOT EXISTS ratelimit_usage (
  workspace_id VARBINARY(191)  NOT NULL COMMENT 'empty: all other namespaces',
  namespace    VARBINARY(255)  NOT NULL COMMENT 'empty: all other namespaces',
  hour_at      BIGINT UNSIGNED NOT NULL COMMENT 'start of the hour, Unix ms by the clock of the database',
  region       VARBINARY(48)   NOT NULL,
  accepted     BIGINT UNSIGNED NOT NULL COMMENT 'cost',
  denied       BIGINT UNSIGNED NOT NULL COMMENT 'cost, an estimate from a sample',
  PRIMARY KEY (workspace_id, namespace, hour_at, region),
  KEY hour_idx (hour_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
