// Package limits has operators' settings and reports about callers: overrides and settings of namespaces, resets of
// keys, the keys that nodes report, held leases and reservations, and estimates of other limits.
//
// # The way of a setting
//
// An override goes from weirctl to the decisions of all nodes like this; settings of namespaces and resets go the same
// way. Restate takes no part, because a setting needs only a single transaction.
//
//  1. `weirctl override set` (cmd/weirctl/settings.go), or the console (console/override.go), sends ChangeOverride to
//     the API. api/settings.go has the method; auth.go and scope.go there check the role and workspaces of the caller.
//  2. [Settings] checks the change by the bounds that nodes have, so that no node rejects it.
//  3. controlplane/store (settings.go) writes it in one transaction: the row of ratelimit_overrides, the entry of the
//     audit log, and a new version of the settings (SettingsChanged).
//  4. In each region the relay notices the new version with the change feed, reads all settings from MySQL
//     (mysqlcounts/settings.go), and stores a copy in each shard of the region's origin (relay/settings.go). It does so
//     once a settings interval.
//  5. Each node reads the copy at its origin once a settings interval (dataplane/internal/rules, Load), and makes an
//     immutable snapshot of it, which replaces the snapshot in force. A node with MySQL reads MySQL itself if the
//     origin fails or its copy is old.
//  6. A decision looks its identifier up in the snapshot (Settings.Resolve there), which replaces the limit and the
//     duration of the request.
//
// So a change reaches nodes within two settings intervals and their jitter: 5 s each by default. If MySQL, the relay or
// the origin fails, nodes keep the settings that they have.
package limits
