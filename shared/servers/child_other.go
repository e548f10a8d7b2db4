//go:build unix && !linux

package servers

import "syscall"

// childAttributes: only on Linux can a child be killed with its parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
