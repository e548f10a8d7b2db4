// Package retire takes an old table out of use: it renames the table, waits, and drops it.
//
// [Retirement] is one document and its transitions, [Steps] their effects, [TableMark]
// how a write is noticed. What must hold:
//
//  1. Nothing is dropped that was not renamed before, without an approval of the rename
//     and one of the drop, by as many different people as the spec asks for, and with a row in it.
//  2. Until the drop an abort gives the table its name back, and nothing is renamed over
//     what has that name.
//  3. Rows that have not expired are never deleted.
//  4. An effect that was given up does nothing once another has come: each has a fence.
package retire
