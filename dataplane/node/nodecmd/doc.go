// Package nodecmd is the command weir-node: its configuration, and the setup of a limiter, its stores and a node.Server
// in one process.
//
// Without any configuration it is a limiter for one machine, in memory, without dependencies. With Redis it is a node
// of a region. With MySQL its region is one of several. Both can be down when it starts, for any length of time: the
// node serves, logs the missing server, and catches up later.
package nodecmd
