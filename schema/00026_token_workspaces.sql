-- +goose Up
-- A token may be valid for some workspaces alone. Such a token's role is stored with the prefix "scoped-", which earlier
-- builds know as no role: they refuse the token instead of letting it into every workspace.
ALTER TABLE ratelimit_tokens
  ADD COLUMN workspaces VARBINARY(18367) NOT NULL DEFAULT '' COMMENT 'at most 32 names with commas between them, escaped as in a URL; empty: all';
