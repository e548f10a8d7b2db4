// Package retire retires an old table: it renames the table, waits, and drops it.
//
// A [Retirement] is one document; its methods are the transitions. [Steps] are their effects, and [TableMark] shows
// whether the table was written. restate/handlers stores the document and sends the timers. Invariants:
//
//  1. A table is dropped only if it was renamed before and is empty. The rename and the drop each need an approval, by
//     as many different people as the spec requires.
//  2. Until the drop an abort gives the table its name back, unless another table has that name by then: no table is
//     renamed over another.
//  3. Rows that have not expired are never deleted.
//  4. A rename or drop that was given up does nothing if it arrives after a later attempt: each has a fence, which
//     rises.
package retire
