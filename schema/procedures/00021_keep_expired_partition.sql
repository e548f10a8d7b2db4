-- +goose Up
-- Moves the rows of the partition of ratelimit_window_counts that ratelimit_drop_expired_partition drops next to a
-- table of their own, ratelimit_kept_<until in Unix ms>_<partition>. Returns the table's name, or NULL if there is nothing
-- to keep. The partition is empty afterwards. The table is kept for keep_ms, 7 days at most, by the server's clock.
--
-- The cutoff, the errors and the wait of a second are the same as in that procedure. If a call was interrupted, repeat it:
-- it continues with the existing table.
CREATE PROCEDURE ratelimit_keep_expired_partition(IN cutoff_ms BIGINT UNSIGNED, IN keep_ms BIGINT UNSIGNED)
MODIFIES SQL DATA
BEGIN
  DECLARE waited INT UNSIGNED DEFAULT @@SESSION.lock_wait_timeout;
  DECLARE now_ms BIGINT UNSIGNED DEFAULT UNIX_TIMESTAMP() * 1000;
  DECLARE found, kept VARCHAR(64) DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
    SET SESSION lock_wait_timeout = waited;
    RESIGNAL;
  END;
  IF cutoff_ms IS NULL OR keep_ms IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'cutoff_ms or keep_ms is NULL';
  END IF;
  SET cutoff_ms = LEAST(cutoff_ms, now_ms);
  SET SESSION lock_wait_timeout = 1;
  SELECT MIN(PARTITION_NAME) INTO found
    FROM information_schema.PARTITIONS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts'
      AND PARTITION_DESCRIPTION REGEXP '^[01],[0-9]+$'
      AND CAST(SUBSTRING_INDEX(PARTITION_DESCRIPTION, ',', -1) AS UNSIGNED) <= cutoff_ms;
  SET @ratelimit_rows = 0, @ratelimit_alive = 0;
  IF found IS NOT NULL THEN
    SET @ratelimit_statement = CONCAT('SELECT COUNT(*) INTO @ratelimit_rows FROM (SELECT 1 FROM ',
      'ratelimit_window_counts PARTITION (`', found, '`) LIMIT 1) AS present');
    PREPARE look FROM @ratelimit_statement;
    EXECUTE look;
    SET @ratelimit_statement = CONCAT('SELECT COUNT(*) INTO @ratelimit_alive FROM (SELECT 1 FROM ',
      'ratelimit_window_counts PARTITION (`', found, '`) WHERE expires_at >= ', cutoff_ms, ' LIMIT 1) AS alive');
    PREPARE look FROM @ratelimit_statement;
    EXECUTE look;
    DEALLOCATE PREPARE look;
  END IF;
  IF @ratelimit_alive > 0 THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a partition holds rows that have not expired: its bounds are not ours';
  END IF;
  IF @ratelimit_rows > 0 THEN
    SELECT MIN(TABLE_NAME) INTO kept FROM information_schema.TABLES
      WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME REGEXP CONCAT('^ratelimit_kept_[0-9]+_', found, '$');
    IF kept IS NULL THEN
      SET kept = CONCAT('ratelimit_kept_', now_ms + LEAST(keep_ms, 604800000), '_', found);
      SET @ratelimit_statement = CONCAT('CREATE TABLE `', kept, '` LIKE ratelimit_window_counts');
      PREPARE keep FROM @ratelimit_statement;
      EXECUTE keep;
      DEALLOCATE PREPARE keep;
    END IF;
    IF EXISTS (SELECT 1 FROM information_schema.PARTITIONS
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = kept AND PARTITION_NAME IS NOT NULL) THEN
      SET @ratelimit_statement = CONCAT('ALTER TABLE `', kept, '` REMOVE PARTITIONING');
      PREPARE keep FROM @ratelimit_statement;
      EXECUTE keep;
      DEALLOCATE PREPARE keep;
    END IF;
    SET @ratelimit_statement = CONCAT('SELECT COUNT(*) INTO @ratelimit_rows FROM (SELECT 1 FROM `', kept,
      '` LIMIT 1) AS present');
    PREPARE look FROM @ratelimit_statement;
    EXECUTE look;
    DEALLOCATE PREPARE look;
    IF @ratelimit_rows = 0 THEN
      SET @ratelimit_statement = CONCAT('ALTER TABLE ratelimit_window_counts EXCHANGE PARTITION `', found,
        '` WITH TABLE `', kept, '`');
      PREPARE keep FROM @ratelimit_statement;
      EXECUTE keep;
      DEALLOCATE PREPARE keep;
    END IF;
  END IF;
  SET SESSION lock_wait_timeout = waited;
  SELECT kept AS name;
END;
