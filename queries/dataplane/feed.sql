-- What relays tell each other. A stream is a region and a shard.

-- name: FeedInsert :execrows
-- Stores a row if it is the next one of its stream: the row before it is there, or the stream is empty and the row is
-- its first. It locks the row before it and its own number; only a stream's first row locks the gap that it lies in.
INSERT INTO ratelimit_changes
  (region, shard, sequence, writer, snapshot, last_part, whole, payload_bytes, payload, written_at)
SELECT sqlc.arg(region), sqlc.arg(shard), sqlc.arg(sequence), sqlc.arg(writer),
  sqlc.arg(snapshot), sqlc.arg(last_part), IF(sqlc.arg(last_part), sqlc.arg(snapshot), COALESCE(p.whole, 0)),
  sqlc.arg(payload_bytes), sqlc.arg(payload), UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000
FROM (SELECT 1 AS one) AS o
LEFT JOIN ratelimit_changes AS p
  ON p.region = sqlc.arg(region) AND p.shard = sqlc.arg(shard) AND p.sequence = sqlc.arg(previous)
WHERE p.sequence IS NOT NULL
   OR (sqlc.arg(previous) = 0 AND NOT EXISTS (
     SELECT 1 FROM ratelimit_changes AS s WHERE s.region = sqlc.arg(region) AND s.shard = sqlc.arg(shard)));

-- name: FeedStored :many
-- One row: an Append that finds its number taken compares its row with this one.
SELECT writer, snapshot, last_part, payload FROM ratelimit_changes
WHERE region = sqlc.arg(region) AND shard = sqlc.arg(shard) AND sequence = sqlc.arg(sequence);

-- name: FeedRead :many
-- Three kinds of rows. 0 is the clock, and as `sequence` the version of the settings plus one; it is always there.
--
-- 1 are the first rows of ranges of the primary key, one range for each stream. A payload that is longer than
-- payload_max, or of a part of a snapshot where the reader wants none, is left out.
--
-- 2 are the first streams in the gaps between those ranges: each one's last number, and as `snapshot` where to begin to
-- read.
--
-- mysqlcounts repeats the predicates of the two WHEREs that have plain placeholders, for each range and each gap.
SELECT 0 AS kind, CAST('' AS BINARY) AS region, 0 AS shard,
  CAST(COALESCE((SELECT v.version FROM ratelimit_settings_version AS v WHERE v.id = 1), 0) + 1 AS SIGNED) AS sequence,
  CAST(0 AS UNSIGNED) AS writer, CAST(0 AS SIGNED) AS snapshot, 0 AS last_part, CAST(0 AS SIGNED) AS payload_bytes,
  CAST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000 AS SIGNED) AS written_at, CAST(NULL AS BINARY) AS payload
UNION ALL
(SELECT 1, s.region, s.shard, s.sequence, s.writer, s.snapshot, s.last_part,
  CAST(s.payload_bytes AS SIGNED), CAST(s.written_at AS SIGNED),
  IF(s.payload_bytes <= CAST(sqlc.arg(payload_max) AS SIGNED) AND (s.snapshot = 0 OR sqlc.arg(snapshots)), s.payload, NULL)
FROM ratelimit_changes AS s
WHERE (s.region = ? AND ((s.shard = ? AND s.sequence >= ?)))
ORDER BY s.region, s.shard, s.sequence LIMIT ?)
UNION ALL
SELECT 2, h.region, h.shard, h.sequence, l.writer, l.whole, 0, 0, 0, NULL
FROM (
  SELECT g.region, g.shard, MAX(g.sequence) AS sequence
  FROM ratelimit_changes AS g
  WHERE (g.region > ? AND g.region < ?) OR (g.region = ? AND g.shard > ? AND g.shard < ?)
  GROUP BY g.region, g.shard
  ORDER BY g.region, g.shard LIMIT ?
) AS h
JOIN ratelimit_changes AS l ON l.region = h.region AND l.shard = h.shard AND l.sequence = h.sequence;

-- name: FeedPayloads :many
-- Long payloads that FeedRead has left out. mysqlcounts repeats the predicate for each.
SELECT region, shard, sequence, writer, payload FROM ratelimit_changes
WHERE (region = ? AND shard = ? AND sequence = ?);

-- name: FeedOwn :many
-- A stream's rows from its last whole snapshot on.
SELECT n.sequence, n.writer, n.snapshot, n.last_part, n.written_at, n.payload FROM ratelimit_changes AS n
WHERE n.region = sqlc.arg(region) AND n.shard = sqlc.arg(shard) AND n.sequence >= (
  SELECT l.whole FROM ratelimit_changes AS l WHERE l.region = sqlc.arg(region) AND l.shard = sqlc.arg(shard)
  ORDER BY l.sequence DESC LIMIT 1)
ORDER BY n.sequence;

-- name: FeedLast :one
SELECT CAST(COALESCE(MAX(sequence), 0) AS SIGNED) AS sequence FROM ratelimit_changes
WHERE region = sqlc.arg(region) AND shard = sqlc.arg(shard);

-- name: FeedPrune :execrows
DELETE FROM ratelimit_changes
WHERE region = sqlc.arg(region) AND shard = sqlc.arg(shard) AND sequence < sqlc.arg(sequence)
ORDER BY sequence LIMIT ?;
