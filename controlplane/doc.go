// Package controlplane is the work that is done on a fleet's behalf, away from its
// requests: rows that expired are deleted, nodes are listed, changes are recorded.
//
// Nothing here is on the request path. With all of it down nodes go on deciding
// with the tuning they have; expired rows pile up and go later.
//
//	weirctl ──► api ──────────► controlplane/store ──► MySQL
//	             │                     ▲
//	             ▼                     │ steps
//	        Restate ──► restate/handlers
//
// Three layers, each of which knows only the one to its right:
//
//   - controlplane/api is the only way in for people. It knows interfaces.
//   - restate/handlers orders steps durably: when, how often, what after a crash.
//     It is the only importer of Restate's SDK.
//   - This package and those of the jobs hold the steps themselves, plain Go on context.Context, and the
//     decisions between them, plain functions of what the steps answered. Neither
//     knows that it may be replayed; both are written so that it does no harm:
//     every step may run twice, and the order of steps depends on nothing but
//     their answers. A job executes each step with [Do], on a [Journal] that
//     restate/handlers implements.
//
// # Packages
//
// This package holds what the jobs share: who acts and why, errors, approvals,
// transitions, bounds, texts, metrics. Each job is a package of its own: cleanup,
// limits, previews, retire, rollout and watch. They use access (tokens and roles),
// audit, fleet, queries (of a Prometheus) and tunings.
//
// # Metrics
//
// [Metrics], and those of cleanup and watch, are the metrics of this process. They count what this process did;
// the totals that survive it are in the job's own state (`weirctl cleanup status`).
package controlplane
