-- +goose Up
-- Rows that expire in the same hour, or on the same day if their window is long, form a partition, which is dropped as a
-- whole: see README.md, "Expiry". Rows without such a partition are in the last partition of their class, so an insert
-- never fails because a partition is missing. The class and expires_at follow from the key's other columns, so the key
-- still has one row for each cell and region.
ALTER TABLE ratelimit_window_counts
  DROP PRIMARY KEY,
  ADD PRIMARY KEY (workspace_id, namespace, identifier, duration_ms, sequence, region, expiry_class, expires_at)
  PARTITION BY RANGE COLUMNS (expiry_class, expires_at) (
    PARTITION h_later VALUES LESS THAN (0, MAXVALUE),
    PARTITION d_later VALUES LESS THAN (1, MAXVALUE),
    PARTITION later VALUES LESS THAN (MAXVALUE, MAXVALUE));
