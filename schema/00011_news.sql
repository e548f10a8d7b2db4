-- +goose Up
-- The change feed: the changes that relays publish, numbered without gaps for each region and shard.
CREATE TABLE IF NOT EXISTS ratelimit_news (
  region        VARBINARY(48)     NOT NULL,
  shard         SMALLINT UNSIGNED NOT NULL,
  sequence      BIGINT            NOT NULL,
  writer        BIGINT UNSIGNED   NOT NULL COMMENT 'random, of a relay since it started',
  snapshot      BIGINT            NOT NULL COMMENT 'the first row of the snapshot that this row is a part of, 0 if none',
  last_part     BOOLEAN           NOT NULL COMMENT 'the last part of that snapshot',
  whole         BIGINT            NOT NULL COMMENT 'the first row of the last whole snapshot up to here, 0 if none',
  payload_bytes INT UNSIGNED      NOT NULL,
  payload       MEDIUMBLOB        NOT NULL COMMENT 'at most 256 KiB',
  written_at    BIGINT UNSIGNED   NOT NULL COMMENT 'Unix ms by the clock of the database',
  PRIMARY KEY (region, shard, sequence)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
