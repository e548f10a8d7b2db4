// Package rollout brings a tuning to a fleet in stages, watches the nodes that have it, and rolls it back if it does
// harm.
//
// A [Rollout] is one document. Its methods are the transitions that operators bring, and Advance, which makes the one
// that time brings (the unexported type transition). [Lock] sees to it that one rollout is under way. [Steps] are the
// effects of both. restate/handlers stores the documents and sends the timers; restate/DESIGN.md follows a rollout
// through both packages.
//
// # Files
//
//	rollout.go plan.go shares.go trials.go     the document, its plan, and the nodes that a stage takes in
//	begin.go operate.go                        transitions that operators bring: start, approve, pause, abort, …
//	stage.go bake.go back.go                   transitions that time brings: each phase of a stage, and the rollback
//	save.go lock.go repair.go                  the state in MySQL; the lock, and how both are corrected after a loss
//	work.go steps.go query.go                  effects: MySQL, heartbeats, Prometheus
//	watch.go relays.go clock.go                figures of regions and nodes, from looks at heartbeats (RegionWatch)
//	look.go                                    which nodes run the tuning (Touches)
//	guardrails.go judge.go evidence.go         the bounds, and whether figures break them
//	compare.go                                 the comparison with regions and nodes without the tuning
//	rails.go                                   all of these figures and bounds, for people
//
// # What must hold
//
//  1. A region is in Touched before anything is written for it, and has its previous
//     document back before a rollout ends as rolled back or aborted.
//  2. A write is made once, however often and by whatever process it is tried: its ID is unique for all time.
//     If a rollback does not know whether a write was made, it makes the write, and undoes it in the same
//     transaction, so that it cannot come later.
//  3. A write names the version that it replaces. If another version has replaced that one,
//     an apply fails, and a rollback leaves the other version in force.
//  4. A rollout has one outcome, and the tunings of all live nodes agree with it: a rollout is
//     done when all report its tuning, and rolled back when none does. An operator may give
//     up nodes that do not follow a rollback; then the rollout is aborted, and its outcome names them.
//  5. Regions and nodes with the tuning are watched until the rollout ends or rolls back, also while it waits: each
//     region and node by itself, beginning with the nodes that were there before.
//  6. One rollout is under way at a time: [Lock] is the lock. MySQL has a row of each rollout before the
//     rollout exists, so it is found even if Restate has lost the lock. A row without a rollout blocks nothing.
//  7. A rollout that is over stays as it ended, except that an operator may roll back one that is done. An ID is used
//     once. An approval is of one stage and its evidence. A stage begins when as many different people as the plan
//     requires have approved it, and none of their approvals has expired.
//
// TestExploreRollouts searches the histories that two operators, late and repeated messages, killed steps, lost state,
// and nodes that die, hang, restart or read an older version can cause, and checks these rules in each state. It visits
// up to 8,000 states, breadth first, for each of six allowances of starts, orders and faults; further searches draw a
// part of the states and so go deeper. It fails if there is a kind of move that no search takes, and with -v it logs
// the depth of each search. With WEIR_SOAK=10m TestExploreRolloutsSoak searches for ten minutes, with larger fleets and
// more orders and faults, and logs the number of states.
package rollout
