-- +goose Up
-- The grow-only counter of what regions have accepted, for good: one row for each cell and
-- region. A region's relays write its own rows; merging two values is taking the larger.
--
-- The six identity columns are the primary key itself, and the names in it are
-- VARBINARY: names are compared as bytes on every engine, trailing spaces and
-- letter case included, and a row's place on disk is its identity, so an upsert
-- touches one B-tree for the row and one for the index below. The key is at most
-- 773 bytes long, lengths included, of the 3,072 that an index may have. README.md
-- has what this form was measured against.
--
-- The key columns count bytes: what the data plane accepts (191/255/255) fits.
CREATE TABLE IF NOT EXISTS ratelimit_window_counts (
  workspace_id VARBINARY(191)  NOT NULL,
  namespace    VARBINARY(255)  NOT NULL,
  identifier   VARBINARY(255)  NOT NULL,
  duration_ms  BIGINT UNSIGNED NOT NULL,
  sequence     BIGINT          NOT NULL,
  region       VARBINARY(48)   NOT NULL,
  count        BIGINT UNSIGNED NOT NULL,
  expires_at   BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms: (sequence + 2) * duration_ms',
  updated_at   BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database: when count last grew',
  PRIMARY KEY (workspace_id, namespace, identifier, duration_ms, sequence, region),
  KEY expires_at_idx (expires_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
