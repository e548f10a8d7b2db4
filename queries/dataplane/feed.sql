-- The change feed: the changes that relays publish. A stream is a region and a shard.

-- name: FeedInsert :execrows
-- Stores a row if it is the next row of its stream: either the previous row exists, or the stream is empty and the row
-- is its first. The statement locks the previous row and its own number. Only a stream's first row locks the gap around
-- it.
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
-- Returns one row. An Append whose number is taken compares its own row with this row.
SELECT writer, snapshot, last_part, payload FROM ratelimit_changes
WHERE region = sqlc.arg(region) AND shard = sqlc.arg(shard) AND sequence = sqlc.arg(sequence);

-- name: FeedRead :many
-- Returns three kinds of rows:
--
-- Kind 0 is the clock, and the version of the settings plus one as `sequence`. This row always exists.
--
-- Kind 1 has the first rows of ranges of the primary key, a range for each stream. A payload is NULL if it is longer
-- than payload_max, or if it belongs to a snapshot and the reader does not want snapshots.
--
-- Kind 2 has the first streams in the gaps between these ranges: the last number of each stream, and the number at which
-- a reader should start as `snapshot`.
--
-- mysqlcounts repeats the predicates of the two WHERE clauses that have plain placeholders, for each range and each gap.
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
-- Returns long payloads that FeedRead has left out. mysqlcounts repeats the predicate for each payload.
SELECT region, shard, sequence, writer, payload FROM ratelimit_changes
WHERE (region = ? AND shard = ? AND sequence = ?);

-- name: FeedOwn :many
-- Returns a stream's rows from its last whole snapshot on.
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
