-- +goose Up
-- Rows from before have the former word. A second run finds none.
UPDATE ratelimit_namespaces SET node_share = 'flush' WHERE node_share = 'kick';
