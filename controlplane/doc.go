// Package controlplane has the work that operators and schedules do for a fleet: they bring it a tuning in stages, set
// limits of callers, delete expired rows, and look at nodes.
//
// Nothing here is on the request path. While all of it is down, nodes go on deciding with the settings that they have,
// and expired rows pile up until it is back.
//
//	weirctl ──► api ──────────► controlplane/store ──► MySQL
//	             │                     ▲
//	             ▼                     │ steps
//	        Restate ──► restate/handlers
//
// There are three layers:
//
//   - controlplane/api is the only way in for people. It calls interfaces: of the store for changes that are one
//     transaction, such as an override, and of the handlers' clients for durable work, such as a rollout.
//   - restate/handlers executes durable work: it decides when a step is executed, how often it is tried, and what
//     follows after a crash. It is the only importer of Restate's SDK.
//   - This package and the packages of the jobs have the steps, which are plain Go on context.Context, and the
//     decisions between them, which are plain functions of the steps' answers. A step may be executed twice and must do
//     no harm then. Which steps follow, and in which order, must depend on nothing but the answers of earlier steps.
//     Durable work executes each step with [Do], on a [Journal] that restate/handlers implements.
//
// restate/DESIGN.md follows a rollout and a cleanup through the files; the documentation of package limits follows an
// override.
//
// # Packages
//
// This package has the common parts of the others: actors and reasons, errors, approvals, transitions, bounds, texts,
// metrics. Each kind of work is a package: cleanup, retire, rollout and watch are durable; limits and previews end with
// the call. They use access (tokens and roles), audit, fleet (heartbeats), queries (of a Prometheus), sequential (the
// statistics of guardrails) and tunings (versions and trials). Package store implements their interfaces of MySQL.
//
// # Metrics
//
// [Metrics], and those of cleanup and watch, are the metrics of this process. They count what this process did; the
// totals that survive it are in the job's own state (`weirctl cleanup status`).
package controlplane
