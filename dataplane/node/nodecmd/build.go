package nodecmd

import "runtime/debug"

// build is set by the linker: -X github.com/weirhq/weir/dataplane/node/nodecmd.build=v1.2.3
var build string

// buildBytesMax is the width of the column that heartbeats report it in.
const buildBytesMax = 64

// Build returns the version of this binary: the linker's value, or else the module's version from the Go toolchain.
func Build() string {
	version := build
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		version = info.Main.Version
	}
	if version == "" {
		version = "unknown"
	}
	return version[:min(len(version), buildBytesMax)]
}
