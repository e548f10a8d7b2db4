// Package limits holds what operators set and look at for callers: overrides and settings of namespaces, resets of
// keys, the keys that nodes report, what is held, and what other limits would deny.
//
// Nodes read overrides and namespaces within a settings interval of a change. [Settings] makes each change in one
// transaction with its audit row.
package limits
