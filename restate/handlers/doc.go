// Package handlers is what Restate runs: the durable order of the control plane's
// steps. It is the only importer of Restate's SDK.
//
//	Keeper ──register──► Restate's admin API
//	   │ └────Ensure───► Restate's ingress ─┐
//	Client ──Pause, …──► Restate's ingress ─┤
//	                                        ▼
//	            Endpoint: WeirOrders ──► WeirCron, WeirRollouts, WeirRollout, ──steps──► package controlplane
//	                                     WeirRetirement, WeirAudit
//
// # WeirOrders
//
// The ingress reaches this service alone, and it passes on the orders that a Client has signed. All other services are
// private. A handler that an operator needs is listed in operations.
//
// # WeirCron
//
// A virtual object keyed by its job: one chain of delayed messages to itself. Each
// Tick carries the generation and the sequence it was sent with and does nothing
// unless both are the recorded ones, so however many chains are begun, by whatever
// accident, one goes on. What must hold:
//
//  1. A Tick sends the next one before it runs the job: whatever becomes of the job,
//     the chain goes on.
//  2. Slots come from the slot before, not from when a run ended; those that were
//     missed are one run, not many.
//  3. A job's error is recorded and not returned. Only a crash is retried.
//  4. A pause is an operator's order and is part of the state: nothing but Resume ends
//     it, not Ensure, not a restart, not a new configuration. MySQL has it too, and the
//     later order of the two counts, so it outlives Restate's data.
//  5. A chain can die all the same: Restate gives up on an invocation after minutes of
//     failures. Hence Ensure, which [Keeper] calls for as long as the process lives.
//
// # WeirRollouts and WeirRollout
//
// One list, which is the fleet's lock, and one object for each rollout, which is
// rollout.Rollout made durable: an invocation makes one transition, writes the
// document down, and sends itself the next timer with the epoch that the document then
// has. What must hold:
//
//  1. A timer of another epoch does nothing. So operators' actions and new builds need
//     not take timers back.
//  2. Only the list begins and takes back rollouts, and it does so when none is under
//     way. The lock is given back by the message that the outcome sends.
//  3. A step that keeps failing is no transition: it is noted and tried again later. So
//     nothing is ever given up between two regions.
//
// # WeirRetirement
//
// An object for each table that can be retired, which is retire.Retirement made
// durable as a rollout is. What must hold beyond that:
//
//  1. Each of the two approvals names what it approves, and takes a look of its own: a
//     request that is repeated, or late, approves nothing else.
//  2. A rename that is given up is fenced off by the one that takes it back.
//
// # What a handler may do
//
// Handlers are replayed: the same journal must lead to the same commands. So every
// effect and every look at a clock is a named step, nothing else reads anything but
// the request, the state and the answers of steps, no value that is journaled tells
// about the process, and there is neither recover nor a deferred compensation, since
// a handler that waits is ended by a panic of the SDK's.
//
// Jobs execute their steps with controlplane.Do on a controlplane.Journal, which is
// Restate's here and a plain call in tests. Names and order of steps, and the form of
// their answers, are what a run that another build began is replayed from:
// TestJournalsHaveTheEntriesOfEarlierBuilds has them all.
//
// A step may be executed twice. All of ours can be.
package handlers
