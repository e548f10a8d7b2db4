-- +goose Up
-- Drops the first table of ratelimit_keep_expired_partition whose time is over by the server's clock. Returns the table's
-- name, or NULL if there is none. If another transaction holds the table, it gives up after a second (error 1205).
CREATE PROCEDURE ratelimit_drop_kept_partition()
MODIFIES SQL DATA
BEGIN
  DECLARE waited INT UNSIGNED DEFAULT @@SESSION.lock_wait_timeout;
  DECLARE kept VARCHAR(64) DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
    SET SESSION lock_wait_timeout = waited;
    RESIGNAL;
  END;
  SET SESSION lock_wait_timeout = 1;
  SELECT MIN(TABLE_NAME) INTO kept FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME REGEXP '^ratelimit_kept_[0-9]+_[hd][0-9]+$'
      AND CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(TABLE_NAME, '_', 3), '_', -1) AS UNSIGNED) <= UNIX_TIMESTAMP() * 1000;
  IF kept IS NOT NULL THEN
    SET @ratelimit_statement = CONCAT('DROP TABLE `', kept, '`');
    PREPARE expire FROM @ratelimit_statement;
    EXECUTE expire;
    DEALLOCATE PREPARE expire;
  END IF;
  SET SESSION lock_wait_timeout = waited;
  SELECT kept AS name;
END;
