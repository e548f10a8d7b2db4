package cpu

import (
	"syscall"
	"time"
)

// ThreadTime returns the processor time of the calling thread.
func ThreadTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
