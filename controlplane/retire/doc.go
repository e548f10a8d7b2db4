// Package retire takes an old table out of use: it renames the table, waits, and drops it.
//
// A [Retirement] is one document; its methods are the transitions. [Steps] are their effects, and [TableMark] shows
// whether the table was written. restate/handlers stores the document and sends the timers. What must hold:
//
//  1. Nothing is dropped that was not renamed before, without an approval of the rename
//     and one of the drop, by as many different people as the spec asks for, and with a row in it.
//  2. Until the drop an abort gives the table its name back, and nothing is renamed over
//     what has that name.
//  3. Rows that have not expired are never deleted.
//  4. A rename or drop that was given up does nothing if it arrives after a later one: each has a fence, which rises.
package retire
