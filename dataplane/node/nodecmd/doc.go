// Package nodecmd is the command weir-node: its configuration, and the wiring of a
// limiter, its stores and a node.Server to one process.
//
// Without any configuration it is a limiter for one machine, in memory, that needs
// nothing else. With Redis it is one of its region's nodes; with MySQL its region is
// one of many. Both may be down when it starts, for any length of time:
// it serves, logs what is missing, and catches up.
package nodecmd
