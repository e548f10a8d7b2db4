-- +goose Up
-- Renames the table of the change feed. Relays of builds before this migration must have ended, because they use the former
-- name. Grants on the former name do not move to the new name.
RENAME TABLE ratelimit_news TO ratelimit_changes;
