-- +goose Up
-- Which version of its region a version was written over, 0 for the region's first. Two
-- writes over the same version are two that did not know of each other: the second fails.
-- Versions that something else wrote have none.
ALTER TABLE ratelimit_tuning
  ADD COLUMN replaces BIGINT UNSIGNED NULL DEFAULT NULL COMMENT 'version of the region before',
  ADD UNIQUE KEY replaces_idx (region, replaces);
