-- +goose Up
-- A token can be limited to some workspaces. The role of such a token is stored with the prefix "scoped-". Earlier builds
-- have no role of that name, so they reject the token instead of accepting it for every workspace.
ALTER TABLE ratelimit_tokens
  ADD COLUMN workspaces VARBINARY(18367) NOT NULL DEFAULT '' COMMENT 'at most 32 names with commas between them, escaped as in a URL; empty: all';
