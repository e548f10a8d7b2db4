// Package preview predicts the effect of a tuning on a fleet with dataplane/sim. Both planes meet here: controlplane
// defines the interface of a previewer, and weir-control provides this implementation.
//
// A simulation runs in a process of its own: the same program, called with [Argument]. So it certainly ends with its
// caller, it cannot use up the memory of the control plane or crash it, and it leaves nothing behind.
//
//	Runner ── previews.Ask ► stdin   Work: sim, one tuning after the other
//	       ◄── lines ─────── stdout
//
// The worker writes a line for each tuning that it has finished, so that there is an answer when the time is up.
package preview
