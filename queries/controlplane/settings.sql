-- Settings of operators.

-- name: OverrideInsert :exec
-- Fails if the override exists. If two operators saw no override, the second operator has to look again.
INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: OverrideUpdate :exec
-- Changes an override, and always raises updated_at, even within a millisecond. A change names the updated_at that its
-- operator saw, so that it cannot overwrite a newer change.
UPDATE ratelimit_overrides SET `limit` = ?, duration_ms = ?, candidate = ?, shadow = ?,
  updated_at = GREATEST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000, updated_at + 1)
WHERE workspace_id = ? AND namespace = ? AND pattern = ?;

-- name: OverrideDelete :execrows
DELETE FROM ratelimit_overrides WHERE workspace_id = ? AND namespace = ? AND pattern = ?;

-- name: OverrideList :many
SELECT workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at
FROM ratelimit_overrides WHERE workspace_id = ? AND namespace = ? AND pattern > sqlc.arg(after_pattern)
ORDER BY pattern LIMIT ?;

-- name: OverrideListAll :many
-- Lists the overrides of all namespaces. It reads three ranges of the primary key, because a comparison of rows would
-- read the whole table.
SELECT workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at
FROM ratelimit_overrides
WHERE workspace_id > sqlc.arg(after_workspace)
  OR (workspace_id = sqlc.arg(after_workspace) AND namespace > sqlc.arg(after_namespace))
  OR (workspace_id = sqlc.arg(after_workspace) AND namespace = sqlc.arg(after_namespace) AND pattern > sqlc.arg(after_pattern))
ORDER BY workspace_id, namespace, pattern LIMIT ?;

-- name: OverrideListOfWorkspaces :many
-- As OverrideListAll, for some workspaces.
SELECT workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at
FROM ratelimit_overrides
WHERE workspace_id IN (sqlc.slice(workspaces))
  AND (workspace_id > sqlc.arg(after_workspace)
    OR (workspace_id = sqlc.arg(after_workspace) AND namespace > sqlc.arg(after_namespace))
    OR (workspace_id = sqlc.arg(after_workspace) AND namespace = sqlc.arg(after_namespace) AND pattern > sqlc.arg(after_pattern)))
ORDER BY workspace_id, namespace, pattern LIMIT ?;

-- name: OverrideGet :many
-- Returns at most one row, and locks it, so that two changes of the row run one after the other.
SELECT `limit`, duration_ms, candidate, shadow, updated_at FROM ratelimit_overrides
WHERE workspace_id = ? AND namespace = ? AND pattern = ? FOR UPDATE;

-- name: OverrideThatApplies :many
-- Returns at most one row: among the overrides whose pattern matches the identifier, the most specific override in the
-- order of window.ComparePatterns. It turns '*' into LIKE's '%', and escapes LIKE's own special characters. It reads
-- the overrides of one namespace. Patterns that are networks are not matched: OverridesOf has these.
SELECT pattern, `limit`, duration_ms, candidate, shadow, updated_at FROM ratelimit_overrides
WHERE workspace_id = sqlc.arg(workspace_id) AND namespace = sqlc.arg(namespace)
  AND sqlc.arg(identifier) LIKE REPLACE(REPLACE(REPLACE(REPLACE(pattern, '|', '||'), '%', '|%'), '_', '|_'), '*', '%') ESCAPE '|'
ORDER BY pattern LIKE '%*%', LENGTH(REPLACE(pattern, '*', '')) DESC, LENGTH(pattern), pattern LIMIT 1;

-- name: OverridesOf :many
-- Returns the overrides of exactly these patterns: for example, the networks that an address or network is in.
SELECT pattern, `limit`, duration_ms, candidate, shadow, updated_at FROM ratelimit_overrides
WHERE workspace_id = ? AND namespace = ? AND pattern IN (sqlc.slice(patterns));

-- name: OverridesOfMany :many
-- Returns the overrides of a namespace whose patterns can match several identifiers, and of which one can match an
-- identifier from first to last: all networks, and patterns with '*'. The text before the first '*' then lies between
-- first and last, or first begins with it. Paths such as a/b are among the rows, although they are exact.
SELECT pattern, `limit`, duration_ms, candidate, shadow, updated_at FROM ratelimit_overrides
WHERE workspace_id = sqlc.arg(workspace_id) AND namespace = sqlc.arg(namespace)
  AND (pattern LIKE '%/%' OR (pattern LIKE '%*%'
    AND SUBSTRING_INDEX(pattern, '*', 1) <= CAST(sqlc.arg(last) AS BINARY)
    AND (SUBSTRING_INDEX(pattern, '*', 1) >= CAST(sqlc.arg(first) AS BINARY)
      OR LEFT(CAST(sqlc.arg(first) AS BINARY), LENGTH(SUBSTRING_INDEX(pattern, '*', 1))) = SUBSTRING_INDEX(pattern, '*', 1))));

-- name: OverridesAlike :many
-- Returns patterns with several '*' that can match the same identifier as the written pattern: the text before the first
-- '*' of one pattern begins with the text before the first '*' of the other. It waits for rows that other transactions
-- are writing.
SELECT pattern FROM ratelimit_overrides
WHERE workspace_id = sqlc.arg(workspace_id) AND namespace = sqlc.arg(namespace) AND pattern LIKE '%*%*%'
  AND LEFT(SUBSTRING_INDEX(pattern, '*', 1), LENGTH(SUBSTRING_INDEX(CAST(sqlc.arg(written) AS BINARY), '*', 1)))
    = LEFT(SUBSTRING_INDEX(CAST(sqlc.arg(written) AS BINARY), '*', 1), LENGTH(SUBSTRING_INDEX(pattern, '*', 1)))
LIMIT ? FOR UPDATE;

-- name: OverrideLook :many
-- Returns at most one row, without a lock, to show it.
SELECT `limit`, duration_ms, candidate, shadow, updated_at FROM ratelimit_overrides
WHERE workspace_id = ? AND namespace = ? AND pattern = ?;

-- name: NamespaceInsert :exec
-- As OverrideInsert.
INSERT INTO ratelimit_namespaces (workspace_id, namespace, shadow, mode, outage, node_share, window_kind, estimate,
  updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: NamespaceUpdate :exec
-- As OverrideUpdate.
UPDATE ratelimit_namespaces SET shadow = ?, mode = ?, outage = ?, node_share = ?, window_kind = ?, estimate = ?,
  updated_at = GREATEST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000, updated_at + 1)
WHERE workspace_id = ? AND namespace = ?;

-- name: NamespaceGet :many
-- Returns at most one row and locks it, as OverrideGet.
SELECT shadow, mode, outage, node_share, window_kind, estimate, updated_at FROM ratelimit_namespaces
WHERE workspace_id = ? AND namespace = ? FOR UPDATE;

-- name: NamespaceList :many
SELECT workspace_id, namespace, shadow, mode, outage, estimate, updated_at, node_share, window_kind
FROM ratelimit_namespaces WHERE workspace_id = ? AND namespace > sqlc.arg(after_namespace) ORDER BY namespace LIMIT ?;

-- name: NamespaceListAll :many
-- As OverrideListAll.
SELECT workspace_id, namespace, shadow, mode, outage, estimate, updated_at, node_share, window_kind
FROM ratelimit_namespaces
WHERE workspace_id > sqlc.arg(after_workspace)
  OR (workspace_id = sqlc.arg(after_workspace) AND namespace > sqlc.arg(after_namespace))
ORDER BY workspace_id, namespace LIMIT ?;

-- name: NamespaceListOfWorkspaces :many
-- As OverrideListOfWorkspaces.
SELECT workspace_id, namespace, shadow, mode, outage, estimate, updated_at, node_share, window_kind
FROM ratelimit_namespaces
WHERE workspace_id IN (sqlc.slice(workspaces))
  AND (workspace_id > sqlc.arg(after_workspace)
    OR (workspace_id = sqlc.arg(after_workspace) AND namespace > sqlc.arg(after_namespace)))
ORDER BY workspace_id, namespace LIMIT ?;

-- name: NamespaceLook :many
-- Returns at most one row, without a lock, to show it.
SELECT shadow, mode, outage, node_share, window_kind, estimate, updated_at FROM ratelimit_namespaces
WHERE workspace_id = ? AND namespace = ?;

-- name: SettingsChanged :exec
-- Raises the version of the settings, so that relays read them again. It must be the last write of the transaction that
-- changes the settings, because it blocks all other changes until the transaction ends.
INSERT INTO ratelimit_settings_version (id, version) VALUES (1, 1)
ON DUPLICATE KEY UPDATE version = version + 1;
