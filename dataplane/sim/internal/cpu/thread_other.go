//go:build !linux

package cpu

import "time"

// ThreadTime returns 0, because this system does not report a thread's time.
func ThreadTime() time.Duration { return 0 }
