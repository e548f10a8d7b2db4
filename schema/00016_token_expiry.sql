-- +goose Up
-- A token can expire, and a new secret can replace its secret. The previous secret stays valid for a while.
ALTER TABLE ratelimit_tokens
  ADD COLUMN expires_at BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'Unix ms by the clock of the database; 0 never',
  ADD COLUMN used_at    BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'Unix ms by the clock of the database, to a minute; 0 never',
  ADD COLUMN old_hash   VARBINARY(32)   NULL DEFAULT NULL COMMENT 'SHA-256 of the secret before',
  ADD COLUMN old_until  BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'Unix ms by the clock of the database: when the secret before ends',
  ADD UNIQUE KEY old_hash_idx (old_hash);
