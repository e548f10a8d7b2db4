-- +goose Up
-- Orders and states of jobs that must survive the loss of Restate's data: the pause of the cleanup, and the state of a
-- retirement. Of two states, the state with the higher number in saved counts.
CREATE TABLE IF NOT EXISTS ratelimit_job_states (
  name  VARBINARY(128)  NOT NULL COMMENT 'of the job, for example pause/cleanup',
  saved BIGINT UNSIGNED NOT NULL,
  state MEDIUMTEXT      NOT NULL COMMENT 'JSON',
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
