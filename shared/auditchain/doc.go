// Package auditchain binds the entries of the audit log into a hash chain, and finds the first entry that does not fit.
//
// Each entry has a [Link]: the id of the entry before, its hash, and its own hash. The hash of an entry is SHA-256 over
//
//	"weir audit entry 1\n"
//	previous   32 bytes: the hash of the entry before, zeros for the first
//	follows    8 bytes: the id of the entry before, 0 for the first
//	id, at     8 bytes each: the entry's id, its time in Unix milliseconds
//	actor, action, subject, reason, before, after, write_id
//	           each as its length in 8 bytes, then its bytes
//
// with integers in big-endian order. An absent write_id counts as empty, because no entry is written with an empty
// write_id. Every column of an entry is in its hash, and so, through previous, is every entry before it: the hash of
// one entry shows whether that entry or any entry before it has changed.
//
// # What a chain shows
//
// A [Verifier] that reads a log from the chain's beginning to its open end finds an entry that was changed, deleted,
// inserted or moved by a writer that did not compute all later hashes again. A writer that may change every row of both
// tables can do that, or cut the newest entries off and take the open end back. Only a hash that was noted outside the
// database finds these: see [Verifier.Expect]. The grants of schema/README.md let neither weir-control nor a node
// change an entry once it is written.
//
// Entries that were written before the chain began have no link, so the chain cannot show changes of them. No part of
// Weir deletes entries. An operator that deletes the oldest entries by hand should export them before. From then on the
// operator must verify from the oldest entry that is left, whose link has the hash of the last exported entry.
package auditchain
