// Package handlers is what Restate calls: the handlers that execute the control plane's steps durably. It is the only
// importer of Restate's SDK.
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
// restate/DESIGN.md explains the words (step, journal, transition, timer, epoch), and follows a rollout, a cleanup and
// a retirement through the files.
//
// # WeirOrders
//
// Restate's ingress reaches this service alone, because all others are private. It passes on the orders that a Client
// has signed. A handler that an operator needs is listed in operations.
//
// # WeirCron
//
// A virtual object keyed by its job: one chain of delayed messages to itself. Each
// Tick carries the generation and the sequence it was sent with and does nothing
// unless both are those of the job's state. So however many chains are begun, one goes on. What must hold:
//
//  1. A Tick sends the next one before it runs the job: whatever becomes of the job,
//     the chain goes on.
//  2. The time of a tick comes from the schedule, not from when the last run ended. Turns that were missed are made up
//     for by one run.
//  3. A job's error is recorded and not returned. Only a crash is retried.
//  4. A pause is an operator's order and is part of the state: nothing but Resume ends
//     it, not Ensure, not a restart, not a new configuration. MySQL has it too, and the
//     later order of the two counts, so it outlives Restate's data.
//  5. A chain can die all the same, because Restate gives up on an invocation after minutes of
//     failures. So [Keeper] calls Ensure for as long as the process lives.
//
// # WeirRollouts and WeirRollout
//
// WeirRollouts is the fleet's lock; MySQL has the list. WeirRollout is an object for each rollout: an invocation makes
// one transition of a rollout.Rollout, saves it to MySQL, stores it in Restate, and sends the next timer with the epoch
// that the document then has. What must hold:
//
//  1. A timer of another epoch does nothing. So operators' orders and new builds need not cancel timers.
//  2. Only the lock begins rollouts and rolls back finished ones (TakeBack), and it does so when none is under
//     way. The outcome of a rollout is a message to the lock (Ended), which releases it.
//  3. If a step keeps failing, there is no transition: the error is noted, and the transition is made again later. So
//     no rollout is given up between two regions.
//
// # WeirRetirement
//
// An object for each table that can be retired. Its invocations make transitions of a retire.Retirement, as those of
// WeirRollout do of a rollout. What must hold beyond that:
//
//  1. Each of the two approvals names the step that it approves, and takes a look of its own: a
//     request that is repeated, or late, approves nothing else.
//  2. A rename that was given up does nothing once the rename back has begun, because its fence is lower.
//
// # What a handler may do
//
// Handlers are replayed: the same journal must lead to the same commands. So:
//
//   - Every effect and every look at a clock is a named step. All other code depends on nothing but the request, the
//     state and the answers of steps.
//   - No journaled value depends on the process that makes it.
//   - There is no recover and no deferred compensation, because the SDK ends a handler that waits by a panic.
//   - A step may be executed twice, and must do no harm then.
//
// Handlers execute steps with controlplane.Do on a controlplane.Journal, which is Restate's here and a plain call in
// tests. A build replays runs that another build began by the names and the order of steps, and by the form of their
// answers: TestJournalsHaveTheEntriesOfEarlierBuilds has them all.
package handlers
