-- +goose Up
-- Rows that expire in the same hour, or on the same day if their window is long, are a partition, which is dropped as a
-- whole: README.md, "Expiry". What has no partition yet, and what never gets one, is in the last one of its class:
-- an insert never fails for want of a partition. The class and expires_at follow from the key's other columns, so the
-- key has a row for each cell and region as before.
ALTER TABLE ratelimit_window_counts
  DROP PRIMARY KEY,
  ADD PRIMARY KEY (workspace_id, namespace, identifier, duration_ms, sequence, region, expiry_class, expires_at)
  PARTITION BY RANGE COLUMNS (expiry_class, expires_at) (
    PARTITION h_later VALUES LESS THAN (0, MAXVALUE),
    PARTITION d_later VALUES LESS THAN (1, MAXVALUE),
    PARTITION later VALUES LESS THAN (MAXVALUE, MAXVALUE));
