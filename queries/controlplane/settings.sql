-- What operators set.

-- name: OverrideInsert :exec
-- Fails where there is one: of two who saw none, the later one has to look again.
INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: OverrideUpdate :exec
-- A change is always later than the one before it, however fast it comes: people change
-- what they have seen, and updated_at is how they say what that was.
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
-- Of all namespaces. Three ranges of the primary key: a comparison of rows would read all of it.
SELECT workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at
FROM ratelimit_overrides
WHERE workspace_id > sqlc.arg(after_workspace)
  OR (workspace_id = sqlc.arg(after_workspace) AND namespace > sqlc.arg(after_namespace))
  OR (workspace_id = sqlc.arg(after_workspace) AND namespace = sqlc.arg(after_namespace) AND pattern > sqlc.arg(after_pattern))
ORDER BY workspace_id, namespace, pattern LIMIT ?;

-- name: OverrideListOfWorkspaces :many
-- As OverrideListAll, of some workspaces.
SELECT workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at
FROM ratelimit_overrides
WHERE workspace_id IN (sqlc.slice(workspaces))
  AND (workspace_id > sqlc.arg(after_workspace)
    OR (workspace_id = sqlc.arg(after_workspace) AND namespace > sqlc.arg(after_namespace))
    OR (workspace_id = sqlc.arg(after_workspace) AND namespace = sqlc.arg(after_namespace) AND pattern > sqlc.arg(after_pattern)))
ORDER BY workspace_id, namespace, pattern LIMIT ?;

-- name: OverrideGet :many
-- None or one. The row is locked: two changes of it come one after the other.
SELECT `limit`, duration_ms, candidate, shadow, updated_at FROM ratelimit_overrides
WHERE workspace_id = ? AND namespace = ? AND pattern = ? FOR UPDATE;

-- name: OverrideThatApplies :many
-- None or one: of those whose pattern matches the identifier the most specific, as window.ComparePatterns
-- has it. A '*' is LIKE's '%', and what LIKE takes for more than itself is escaped. It looks at the
-- overrides of one namespace.
SELECT pattern, `limit`, duration_ms, candidate, shadow, updated_at FROM ratelimit_overrides
WHERE workspace_id = sqlc.arg(workspace_id) AND namespace = sqlc.arg(namespace)
  AND sqlc.arg(identifier) LIKE REPLACE(REPLACE(REPLACE(REPLACE(pattern, '|', '||'), '%', '|%'), '_', '|_'), '*', '%') ESCAPE '|'
ORDER BY pattern LIKE '%*%', LENGTH(REPLACE(pattern, '*', '')) DESC, LENGTH(pattern), pattern LIMIT 1;

-- name: OverridesAlike :many
-- Patterns with several '*' whose text before the first '*' begins with that of another, or the other way around: an
-- identifier can meet them together. It waits for rows that others are writing.
SELECT pattern FROM ratelimit_overrides
WHERE workspace_id = sqlc.arg(workspace_id) AND namespace = sqlc.arg(namespace) AND pattern LIKE '%*%*%'
  AND LEFT(SUBSTRING_INDEX(pattern, '*', 1), LENGTH(SUBSTRING_INDEX(CAST(sqlc.arg(written) AS BINARY), '*', 1)))
    = LEFT(SUBSTRING_INDEX(CAST(sqlc.arg(written) AS BINARY), '*', 1), LENGTH(SUBSTRING_INDEX(pattern, '*', 1)))
LIMIT ? FOR UPDATE;

-- name: OverrideLook :many
-- None or one, to show it.
SELECT `limit`, duration_ms, candidate, shadow, updated_at FROM ratelimit_overrides
WHERE workspace_id = ? AND namespace = ? AND pattern = ?;

-- name: NamespaceInsert :exec
-- As OverrideInsert.
INSERT INTO ratelimit_namespaces (workspace_id, namespace, shadow, mode, outage, node_share, estimate, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000);

-- name: NamespaceUpdate :exec
-- As OverrideUpdate.
UPDATE ratelimit_namespaces SET shadow = ?, mode = ?, outage = ?, node_share = ?, estimate = ?,
  updated_at = GREATEST(UNIX_TIMESTAMP() * 1000 + MICROSECOND(NOW(3)) DIV 1000, updated_at + 1)
WHERE workspace_id = ? AND namespace = ?;

-- name: NamespaceGet :many
-- None or one, as OverrideGet.
SELECT shadow, mode, outage, node_share, estimate, updated_at FROM ratelimit_namespaces
WHERE workspace_id = ? AND namespace = ? FOR UPDATE;

-- name: NamespaceList :many
SELECT workspace_id, namespace, shadow, mode, outage, estimate, updated_at, node_share
FROM ratelimit_namespaces WHERE workspace_id = ? AND namespace > sqlc.arg(after_namespace) ORDER BY namespace LIMIT ?;

-- name: NamespaceListAll :many
-- As OverrideListAll.
SELECT workspace_id, namespace, shadow, mode, outage, estimate, updated_at, node_share
FROM ratelimit_namespaces
WHERE workspace_id > sqlc.arg(after_workspace)
  OR (workspace_id = sqlc.arg(after_workspace) AND namespace > sqlc.arg(after_namespace))
ORDER BY workspace_id, namespace LIMIT ?;

-- name: NamespaceListOfWorkspaces :many
-- As OverrideListOfWorkspaces.
SELECT workspace_id, namespace, shadow, mode, outage, estimate, updated_at, node_share
FROM ratelimit_namespaces
WHERE workspace_id IN (sqlc.slice(workspaces))
  AND (workspace_id > sqlc.arg(after_workspace)
    OR (workspace_id = sqlc.arg(after_workspace) AND namespace > sqlc.arg(after_namespace)))
ORDER BY workspace_id, namespace LIMIT ?;

-- name: NamespaceLook :many
-- None or one, to show it.
SELECT shadow, mode, outage, node_share, estimate, updated_at FROM ratelimit_namespaces
WHERE workspace_id = ? AND namespace = ?;

-- name: SettingsChanged :exec
-- Tells relays that the settings have changed, in the transaction that changes them and as the last of its writes, since
-- it locks out all other changes until the end.
INSERT INTO ratelimit_settings_version (id, version) VALUES (1, 1)
ON DUPLICATE KEY UPDATE version = version + 1;
