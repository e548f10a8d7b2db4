-- +goose Up
-- Trials: tunings that nodes run for a rollout. The newest row of a region counts. A trial replaces the region's tuning
-- while its rollout extends ends_at. Nodes that receive no renewal return to the tuning by themselves. A trial is void if
-- the region has another version of its own than over_version. The row of a trial that has ended stays, so that a late
-- write is recognized as a repetition.
CREATE TABLE IF NOT EXISTS ratelimit_trials (
  number       BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  region       VARBINARY(48)   NOT NULL COMMENT 'empty: regions without a tuning or a trial of their own',
  document     TEXT            NOT NULL COMMENT 'JSON, see package tuning',
  below        BIGINT UNSIGNED NOT NULL COMMENT 'nodes try it whose share is below, see tuning.TrialShare',
  over_version BIGINT UNSIGNED NOT NULL COMMENT 'newest version of the region when it began, 0 for none',
  ends_at      BIGINT UNSIGNED NOT NULL COMMENT 'Unix ms by the clock of the database',
  write_id     VARBINARY(128)  NOT NULL COMMENT 'rollout, stage and region',
  PRIMARY KEY (number),
  KEY region_idx (region, number),
  UNIQUE KEY write_idx (write_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
