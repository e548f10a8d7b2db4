// Package store executes the control plane's statements on MySQL. It wraps the generated statements of
// queries/controlplane in the types of the other packages.
//
// Statements that delete run in transactions of their own at READ COMMITTED. At the default level a range delete also
// locks the gaps between the rows, and a relay that stores a new row in a gap would wait for the whole batch.
package store
