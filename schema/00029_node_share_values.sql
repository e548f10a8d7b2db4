-- +goose Up
-- Replaces the former value in existing rows. A second run finds no row.
UPDATE ratelimit_namespaces SET node_share = 'flush' WHERE node_share = 'kick';
