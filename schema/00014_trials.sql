-- +goose Up
-- Tunings that rollouts have nodes try: the newest row of a region counts. A trial stands in for the region's tuning as
-- long as its rollout moves ends_at: nodes that hear of no renewal return by themselves. It is void once the region has
-- another version of its own than the one that it is over. A row stays when it is over, so that a write that arrives
-- late is found to have been made.
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
