// Package store is MySQL for the steps of the control plane: the statements of
// queries/controlplane, with Go's types around them.
//
// Statements that delete run in transactions of their own at READ COMMITTED: a
// range delete at the default level also locks the gaps between the rows, and a
// relay that stores a new row into one would wait for the batch to end.
package store
