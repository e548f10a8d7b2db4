//go:build unix && !linux

package servers

// parentMain: only Linux has tests of what becomes of the servers of a killed parent.
func parentMain() {}
