// Package preview predicts what a tuning would do to a fleet, by dataplane/sim. It is
// where the planes meet: controlplane says what it needs of a previewer, and weir-control
// hands this one in.
//
// A simulation runs in a process of its own, the same program called with [Argument]:
// so its end is certain whenever the caller's is, it cannot take the memory of the
// control plane or bring it down, and none of it is left behind.
//
//	Runner ── previews.Ask ► stdin   Work: sim, one tuning after the other
//	       ◄── lines ─────── stdout
//
// The worker writes a line for each tuning that it is done with, so that what there is
// when time is up is an answer.
package preview
