-- +goose Up
-- One row, which each change of tunings, namespaces, overrides or resets raises with it. Relays read it with their news,
-- and read the settings when it has changed. Changes that do not raise it are found within a minute.
CREATE TABLE IF NOT EXISTS ratelimit_settings_version (
  id      TINYINT UNSIGNED NOT NULL COMMENT '1',
  version BIGINT UNSIGNED  NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
