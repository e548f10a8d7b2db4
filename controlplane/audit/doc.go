// Package audit has the entries of the audit log, which has an entry for every change, the pages of the log, and the
// hash chain that shows whether an entry was changed or removed.
package audit
