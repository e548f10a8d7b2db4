-- +goose Up
-- Nearly all of these rows have the former default, which no operator chose. The new updated_at rejects a form or a plan
-- that was opened before the migration. A second run finds no row.
UPDATE ratelimit_namespaces SET node_share = 'wait',
  updated_at = GREATEST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000, updated_at + 1)
WHERE node_share = 'flush';
