// Package handlers has the handlers that Restate calls to execute the control plane's steps durably. No other package
// may import Restate's SDK.
//
//	Keeper ──register──► Restate's admin API
//	   │ └────Ensure───► Restate's ingress ─┐
//	Client ──Pause, …──► Restate's ingress ─┤
//	                                        ▼
//	            Endpoint: WeirOrders ──► WeirCron ────────── steps ──► packages cleanup and watch
//	                                     WeirRollouts,
//	                                     WeirRollout ─────── steps ──► package rollout
//	                                     WeirRetirement ──── steps ──► package retire
//	                    the others ────► WeirAudit ───────── step ───► package audit
//
// restate/DESIGN.md explains the terms (step, journal, transition, timer, epoch), and follows a rollout, a cleanup and
// a retirement through the files.
//
// # WeirOrders
//
// Restate's ingress reaches this service alone, because all others are private. It passes on the orders that a Client
// has signed. A handler that operators need must be listed in operations.
//
// # WeirCron
//
// WeirCron is a virtual object for each job: a chain of delayed messages to itself. Each Tick carries the generation
// and the sequence with which it was sent, and does nothing unless both equal the job's state. So however many chains
// are begun, a single chain goes on. Invariants:
//
//  1. A Tick sends the next Tick before it runs the job, so the chain goes on even if the job fails.
//  2. The time of a tick comes from the schedule, and not from the end of the last run. A single run makes up for all
//     missed ticks.
//  3. A job's error is recorded and not returned. Only a crash is retried.
//  4. A pause is an operator's order and is part of the state. Only Resume ends it: not Ensure, a restart or a new
//     configuration. MySQL has the order too, and the later order of the two counts, so it outlives Restate's data.
//  5. A chain can still die, because Restate gives up on an invocation after minutes of failures. So [Keeper] calls
//     Ensure for as long as the process lives.
//
// # WeirRollouts and WeirRollout
//
// WeirRollouts is the fleet's lock; MySQL has the list. WeirRollout is an object for each rollout. An invocation makes
// one transition of a rollout.Rollout, saves it to MySQL, stores it in Restate, and sends the next timer with the
// document's new epoch. Invariants:
//
//  1. A timer of another epoch does nothing. So operators' orders and new builds need not cancel timers.
//  2. Only the lock begins rollouts and rolls back finished rollouts (TakeBack), and only while no rollout is under
//     way. A rollout sends its outcome to the lock (Ended), which releases it.
//  3. If a step keeps failing, there is no transition: the error is recorded, and the transition is retried later. So
//     no rollout is given up between two regions.
//
// # WeirRetirement
//
// WeirRetirement is an object for each table that can be retired. Its invocations make transitions of a
// retire.Retirement, as WeirRollout does of a rollout. Further invariants:
//
//  1. Each of the two approvals names the step that it approves, and takes a look of its own. So a request that is
//     repeated or late approves nothing else.
//  2. A rename that was given up does nothing once the rename back has begun, because its fence is lower.
//
// # Rules for handlers
//
// Handlers are replayed: the same journal must lead to the same commands. So:
//
//   - Every effect and every read of a clock must be a named step. All other code must depend only on the request, the
//     state and the results of steps.
//   - No journaled value may depend on the process that makes it.
//   - Handlers must not use recover or deferred compensation, because the SDK ends a waiting handler by a panic.
//   - A step can be executed twice, and must do no harm then.
//
// Handlers execute steps with controlplane.Do on a controlplane.Journal, which is Restate's here and a plain call in
// tests. A build replays runs that another build began, by the names and the order of steps and the form of their
// results: TestJournalsHaveTheEntriesOfEarlierBuilds lists them all.
package handlers
