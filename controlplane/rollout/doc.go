// Package rollout brings a tuning to a fleet in stages, watches what has it, and takes it back where it does harm.
//
// [Rollout] is one document and its transitions, [Steps] their effects, [Guardrails]
// and [RegionWatch] the arithmetic. What must hold:
//
//  1. A region is in Touched before anything is written for it, and has its previous
//     document back before a rollout ends as rolled back or aborted.
//  2. A write is made once, however often and by whatever process it is tried: its ID is unique for all time.
//     A rollback makes the writes it cannot account for, and undoes them in the same
//     transaction, so that none of them can come later.
//  3. A write names the version that it replaces. Where something else has replaced that one,
//     an apply fails, and a rollback leaves what it finds.
//  4. A rollout has one outcome, and what live nodes run everywhere agrees with it: one is
//     done when all report its tuning, and rolled back when none does. An operator may give
//     up those that do not follow a rollback; then it is aborted and says so.
//  5. What has the tuning is watched until the rollout is over, whatever it waits for: each
//     region and node by itself, from the nodes that were there before.
//  6. One rollout is under way at a time: [List] has the lock. MySQL has a row of each rollout before the
//     rollout exists, which leads to it where Restate has lost the list. A row without a rollout holds nothing up.
//  7. One that is over stays as it ended, except that an operator may take back what is done. An id is used once,
//     and an approval approves one stage, whose evidence it names. A stage begins when as many different people as the
//     plan asks for have approved it, none of them longer ago than an approval counts.
//
// TestExploreRollouts searches what two operators, late and repeated messages, killed steps, nodes that die, hang,
// start anew or are told an older version, and lost state can bring about, and holds it against these rules. It visits
// 20,000 worlds, breadth first, for each of six allowances of starts, orders and faults: 15 moves deep for one rollout
// without either, 9 where a stage takes two people, 3 with a fault, 2 with two operators and two faults. Searches that
// draw a part of the worlds go deeper. It fails if there is a kind of move that it never takes. With WEIR_SOAK=10m
// TestExploreRolloutsSoak goes on for ten minutes, with larger fleets and more orders and faults, and says how many
// worlds it has visited.
package rollout
