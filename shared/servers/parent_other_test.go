//go:build unix && !linux

package servers

// parentMain: only Linux has tests for the servers of a killed parent.
func parentMain() {}
