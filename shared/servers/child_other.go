//go:build unix && !linux

package servers

import "syscall"

// childAttributes: only Linux lets a child ask to be killed with its parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
