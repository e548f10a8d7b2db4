-- +goose Up
-- The grow-only counter of the cost that regions have accepted: a row for each cell and
-- region. A region's relays write only the region's own rows. To merge two values, take the larger.
--
-- The six identity columns are the primary key. Its names are VARBINARY, so every engine
-- compares them as bytes, trailing spaces and letter case included. A row is stored at the
-- place of its key, so an upsert changes one B-tree for the row and one for the index below.
-- The key is at most 773 bytes long, lengths included; an index can have 3,072. README.md
-- compares this form with others.
--
-- The key columns count bytes. All names that the data plane accepts (191/255/255) fit.
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
