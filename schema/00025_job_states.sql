-- +goose Up
-- What operators have ordered of jobs, so that an order outlives Restate's data: the pause of the cleanup, and how a
-- retirement stands. Of two states the one with the higher number in saved counts.
CREATE TABLE IF NOT EXISTS ratelimit_job_states (
  name  VARBINARY(128)  NOT NULL COMMENT 'of the job, for example pause/cleanup',
  saved BIGINT UNSIGNED NOT NULL,
  state MEDIUMTEXT      NOT NULL COMMENT 'JSON',
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
