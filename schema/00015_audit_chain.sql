-- +goose Up
-- The hash chain of the audit log: one row an entry, and row 0, the open end, which says what the next entry follows.
-- A writer locks row 0 to its commit, so entries are linked one after another. Entries older than this table have no
-- row: the chain begins with the first entry written after it. Package shared/auditchain defines the hash.
CREATE TABLE IF NOT EXISTS ratelimit_audit_chain (
  entry_id      BIGINT UNSIGNED NOT NULL COMMENT 'the id in ratelimit_audit; 0: the open end',
  follows       BIGINT UNSIGNED NOT NULL COMMENT 'the id of the entry before; 0: none',
  previous_hash BINARY(32)      NOT NULL COMMENT 'its hash; zeros: none',
  hash          BINARY(32)      NOT NULL COMMENT 'SHA-256 of this entry and of what it follows; zeros: the open end',
  PRIMARY KEY (entry_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
