-- +goose Up
-- Which keys a node sees active at all: a set filter, replaced whenever it changes.
CREATE TABLE IF NOT EXISTS ratelimit_digests (
  region     VARBINARY(48)   NOT NULL,
  node_id    VARBINARY(64)   NOT NULL,
  key_count  BIGINT UNSIGNED NOT NULL,
  filter     MEDIUMBLOB      NOT NULL COMMENT 'at most 1 MiB',
  made_at    BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the node',
  expires_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the node',
  updated_at BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  PRIMARY KEY (region, node_id),
  KEY updated_at_idx (updated_at),
  KEY expires_at_idx (expires_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
