package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf returns the time that another process has used so far, in user and system time. Each process is a clock, whose
// number is made of the process's (clock_getcpuclockid(3)). /proc has only hundredths of a second.
func cpuOf(pid int) (time.Duration, error) {
	const schedulers = 2
	var used unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|schedulers, &used); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}
