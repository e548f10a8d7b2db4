-- +goose Up
-- Drops the first partition of ratelimit_window_counts whose rows all expired before cutoff_ms. Returns its name and its
-- approximate number of rows; name is NULL if there is no such partition. It runs as the user that migrated, so its caller
-- needs EXECUTE on it, but no right to alter or drop the table.
--
-- If the cutoff is ahead of the server's clock, the clock counts instead, because callers' clocks may be slightly ahead. It
-- never drops a partition with a row that has not expired by then, even if the partition has other bounds. If the user has
-- lost its rights and sees no partitions, the call fails. If another transaction holds the table, it gives up after a
-- second (error 1205), because later publishes wait behind it for that time.
CREATE PROCEDURE ratelimit_drop_expired_partition(IN cutoff_ms BIGINT UNSIGNED)
MODIFIES SQL DATA
BEGIN
  DECLARE waited INT UNSIGNED DEFAULT @@SESSION.lock_wait_timeout;
  DECLARE found VARCHAR(64) DEFAULT NULL;
  DECLARE found_rows BIGINT UNSIGNED DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
    SET SESSION lock_wait_timeout = waited;
    RESIGNAL;
  END;
  IF cutoff_ms IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'cutoff_ms is NULL';
  END IF;
  SET cutoff_ms = LEAST(cutoff_ms, UNIX_TIMESTAMP() * 1000);
  IF NOT EXISTS (SELECT 1 FROM information_schema.PARTITIONS
      WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts' AND PARTITION_NAME IS NOT NULL) THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the definer sees no partitions of ratelimit_window_counts';
  END IF;
  SET SESSION lock_wait_timeout = 1;
  SELECT MIN(PARTITION_NAME) INTO found
    FROM information_schema.PARTITIONS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts'
      AND PARTITION_DESCRIPTION REGEXP '^[01],[0-9]+$'
      AND CAST(SUBSTRING_INDEX(PARTITION_DESCRIPTION, ',', -1) AS UNSIGNED) <= cutoff_ms;
  IF found IS NOT NULL THEN
    SELECT COALESCE(TABLE_ROWS, 0) INTO found_rows
      FROM information_schema.PARTITIONS
      WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts' AND PARTITION_NAME = found;
    SET @ratelimit_statement = CONCAT('SELECT COUNT(*) INTO @ratelimit_alive FROM (SELECT 1 FROM ',
      'ratelimit_window_counts PARTITION (`', found, '`) WHERE expires_at >= ', cutoff_ms, ' LIMIT 1) AS alive');
    PREPARE look FROM @ratelimit_statement;
    EXECUTE look;
    DEALLOCATE PREPARE look;
    IF @ratelimit_alive > 0 THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a partition holds rows that have not expired: its bounds are not ours';
    END IF;
    SET @ratelimit_statement = CONCAT('ALTER TABLE ratelimit_window_counts DROP PARTITION `', found, '`');
    PREPARE expire FROM @ratelimit_statement;
    EXECUTE expire;
    DEALLOCATE PREPARE expire;
  END IF;
  SET SESSION lock_wait_timeout = waited;
  SELECT found AS name, found_rows AS rows_about;
END;
