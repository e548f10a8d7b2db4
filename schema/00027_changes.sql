-- +goose Up
-- The change feed by its name. Relays of builds before this migration must have ended: they use the former name. Grants
-- on the former name do not follow.
RENAME TABLE ratelimit_news TO ratelimit_changes;
