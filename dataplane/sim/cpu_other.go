//go:build !linux

package sim

import "time"

// threadTime returns 0, because this system does not report a thread's time.
func threadTime() time.Duration { return 0 }
