-- +goose Up
-- What makes an entry that durable work sends be written once, however often the write is
-- tried. Entries that are written together with their change have none.
ALTER TABLE ratelimit_audit
  ADD COLUMN write_id VARBINARY(128) NULL DEFAULT NULL COMMENT 'of the message that brought the entry',
  ADD UNIQUE KEY write_idx (write_id);
