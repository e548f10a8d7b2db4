//go:build !linux

package sim

import "time"

// threadTime is 0 where the system does not tell.
func threadTime() time.Duration { return 0 }
