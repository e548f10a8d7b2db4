-- +goose Up
-- Creates partitions of ratelimit_window_counts ahead, for the next 54 hours and the next 70 days. Returns the number of
-- new partitions, and the number of classes that it skipped. Rows that are already in the last partition of a class are
-- copied to their partitions while publishes wait, so it skips a class with more than rows_max such rows. It runs as the
-- user that migrated. If another transaction holds the table, it gives up after a second (error 1205).
CREATE PROCEDURE ratelimit_add_partitions(IN rows_max BIGINT UNSIGNED)
MODIFIES SQL DATA
BEGIN
  DECLARE waited INT UNSIGNED DEFAULT @@SESSION.lock_wait_timeout;
  DECLARE now_ms BIGINT UNSIGNED DEFAULT UNIX_TIMESTAMP() * 1000;
  DECLARE class INT UNSIGNED DEFAULT 0;
  DECLARE width, ahead, slack, bound_ms, until_ms BIGINT UNSIGNED;
  DECLARE added, skipped INT UNSIGNED DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
    SET SESSION lock_wait_timeout = waited;
    RESIGNAL;
  END;
  SET SESSION lock_wait_timeout = 1;
  WHILE class < 2 DO
    SET width = IF(class = 0, 3600000, 86400000), ahead = IF(class = 0, 54, 70), slack = IF(class = 0, 6, 1);
    SET until_ms = (now_ms DIV width + ahead) * width;
    SELECT COALESCE(MAX(CAST(SUBSTRING_INDEX(PARTITION_DESCRIPTION, ',', -1) AS UNSIGNED)), 0) INTO bound_ms
      FROM information_schema.PARTITIONS
      WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts'
        AND PARTITION_DESCRIPTION REGEXP CONCAT('^', class, ',[0-9]+$');
    SET bound_ms = GREATEST(bound_ms, now_ms DIV width * width);
    IF bound_ms + slack * width <= until_ms THEN
      SET @ratelimit_statement = CONCAT('SELECT COUNT(*) INTO @ratelimit_rows FROM (SELECT 1 FROM ',
        'ratelimit_window_counts PARTITION (', IF(class = 0, 'h', 'd'), '_later) LIMIT ', rows_max + 1, ') AS present');
      PREPARE look FROM @ratelimit_statement;
      EXECUTE look;
      DEALLOCATE PREPARE look;
      IF @ratelimit_rows > rows_max THEN
        SET skipped = skipped + 1;
      ELSE
        SET @ratelimit_statement = CONCAT('ALTER TABLE ratelimit_window_counts REORGANIZE PARTITION ',
          IF(class = 0, 'h', 'd'), '_later INTO (');
        WHILE bound_ms < until_ms DO
          SET bound_ms = bound_ms + width, added = added + 1;
          SET @ratelimit_statement = CONCAT(@ratelimit_statement, 'PARTITION ', IF(class = 0, 'h', 'd'), bound_ms,
            ' VALUES LESS THAN (', class, ', ', bound_ms, '), ');
        END WHILE;
        SET @ratelimit_statement = CONCAT(@ratelimit_statement, 'PARTITION ', IF(class = 0, 'h', 'd'),
          '_later VALUES LESS THAN (', class, ', MAXVALUE))');
        PREPARE ahead_of_time FROM @ratelimit_statement;
        EXECUTE ahead_of_time;
        DEALLOCATE PREPARE ahead_of_time;
      END IF;
    END IF;
    SET class = class + 1;
  END WHILE;
  SET SESSION lock_wait_timeout = waited;
  SELECT added, skipped;
END;
