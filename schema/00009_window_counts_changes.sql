-- +goose Up
-- What has changed since: an import reads this index from its end, and of the table
-- no more than the cells that it finds there.
ALTER TABLE ratelimit_window_counts ADD KEY updated_at_idx (updated_at);
