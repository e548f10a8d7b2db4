-- +goose Up
-- One row with a version, which each change of tunings, trials, namespaces, overrides or resets raises. Relays read it with
-- the change feed. If it has changed, they read the settings. Changes that do not raise it are found within a minute.
CREATE TABLE IF NOT EXISTS ratelimit_settings_version (
  id      TINYINT UNSIGNED NOT NULL COMMENT '1',
  version BIGINT UNSIGNED  NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
