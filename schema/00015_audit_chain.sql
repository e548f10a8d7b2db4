-- +goose Up
-- The hash chain of the audit log: a row for each entry, and row 0, the open end, with the entry that the next entry
-- follows. A writer locks row 0 until its commit, so entries are linked in order. Entries that are older than this table
-- have no row: the chain begins with the first entry after its creation. Package shared/auditchain defines the hash.
CREATE TABLE IF NOT EXISTS ratelimit_audit_chain (
  entry_id      BIGINT UNSIGNED NOT NULL COMMENT 'the id in ratelimit_audit; 0: the open end',
  follows       BIGINT UNSIGNED NOT NULL COMMENT 'the id of the entry before; 0: none',
  previous_hash BINARY(32)      NOT NULL COMMENT 'its hash; zeros: none',
  hash          BINARY(32)      NOT NULL COMMENT 'SHA-256 of this entry and of what it follows; zeros: the open end',
  PRIMARY KEY (entry_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
