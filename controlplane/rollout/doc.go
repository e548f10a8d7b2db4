// Package rollout brings a tuning, or a change of limits, to a fleet in stages, watches the nodes that run it, and
// rolls it back if it does harm.
//
// A [Rollout] is one document. Its methods are transitions: operators call some of them, and Advance makes the
// transition that is due by time (the unexported type transition). [Lock] makes sure that only one rollout is under
// way. [Steps] are the effects of the transitions. restate/handlers stores the documents and sends the timers;
// restate/DESIGN.md follows a rollout through both packages.
//
// # Files
//
//	rollout.go spec.go                         the document, and the order that it begins with
//	begin.go operate.go                        transitions of operators: start, approve, pause, abort, …
//	stage.go bake.go back.go                   transitions of time: each phase of a stage, and the rollback
//	save.go lock.go repair.go                  the state in MySQL; the lock, and how both are corrected after a loss
//	work.go steps.go query.go                  effects: MySQL, heartbeats, Prometheus
//	touched.go trials.go                       regions with the tuning, their trials, and which nodes run it
//	watch.go                                   looks at nodes, which package guard judges
//	limits.go                                  rollouts of limits: their changes and writes
//
// Package plan has the stages and the bounds, and package guard the figures. Both are pure; guard imports plan, and
// neither imports this package.
//
// # Invariants
//
//  1. A region is in Touched before anything is written for it, and has its previous document back before a rollout
//     ends as rolled back or aborted.
//  2. A write is made once, however often and by whichever process it is tried: its ID is unique for all time. If it is
//     not certain whether a write was made, a rollback makes the write and undoes it in the same transaction, so that
//     it cannot arrive later.
//  3. A write names the version that it replaces. If another version has replaced that version, an apply fails, and a
//     rollback leaves the other version in force.
//  4. A rollout has one outcome, and the tunings of all live nodes agree with it: a rollout is done when all nodes
//     report its tuning, and rolled back when no node does. An operator can give up nodes that do not follow a
//     rollback; then the rollout is aborted, and its outcome names these nodes.
//  5. Regions and nodes with the tuning are watched until the rollout ends or rolls back, also while it waits. Each
//     region and node is judged by itself, beginning with the nodes that were there before the stage.
//  6. One rollout is under way at a time, because of [Lock]. MySQL has a row of each rollout before the rollout exists,
//     so it is found even if Restate has lost the lock. A row without a rollout blocks nothing.
//  7. A rollout that is over does not change, except that an operator can roll back a rollout that is done. An ID is
//     used once. An approval is valid for one stage and its evidence. A stage begins when as many different people as
//     the plan requires have approved it, and none of their approvals has expired.
//  8. A rollout of limits stores all of its items in one transaction, or none, and only if each is as before the
//     change. A rollback restores the items that are still as the rollout stored them. So no rollout overwrites an
//     edit.
//
// TestExploreRollouts searches the histories that two operators, late and repeated messages, killed steps, lost state,
// and nodes that die, hang, restart or read an older version can cause, and checks these rules in each state. It visits
// up to 8,000 states, breadth first, for each of six allowances of starts, orders and faults. Further searches visit a
// part of the states and so go deeper. It fails if no search makes some kind of move, and with -v it logs the depth of
// each search. With WEIR_SOAK=10m TestExploreRolloutsSoak searches for ten minutes, with larger fleets and more orders
// and faults, and logs the number of states.
package rollout
