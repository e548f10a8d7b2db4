// Package retire takes an old table out of use: it renames the table, waits, and drops it.
//
// A [Retirement] is one document; its methods are the transitions. [Steps] are their effects, and [TableMark] shows
// whether the table was written. restate/handlers stores the document and sends the timers. What must hold:
//
//  1. A table is dropped only if it was renamed before and is empty, and only with an approval of the rename
//     and one of the drop, each by as many different people as the spec requires.
//  2. Until the drop an abort gives the table its name back, unless another table has that name by then: no table is
//     renamed over another.
//  3. Rows that have not expired are never deleted.
//  4. A rename or drop that was given up does nothing if it arrives after a later one: each has a fence, which rises.
package retire
