package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is a run of a server's program.
type child struct {
	cmd     *exec.Cmd
	running context.Context // done when the child has ended and Wait has returned
}

// spawn starts cmd in its own process group, so that a Ctrl-C at the terminal reaches only the parent, which then stops
// its servers in order.
//
// On Linux the child requests SIGKILL from the kernel for the death of its parent. For the kernel, "parent" is the
// *thread* that forked, and Go can end threads at any time. So that thread stays locked to this goroutine until the
// child is gone.
func spawn(cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = childAttributes()
	running, ended := context.WithCancel(context.Background())
	c := &child{cmd: cmd, running: running}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer ended()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its result is in cmd.ProcessState
		}
	}()
	return c, <-started
}

// state describes how the child ended. It must be called only after the child has ended.
func (c *child) state() string { return c.cmd.ProcessState.String() }

// kill ends the child with SIGKILL and waits for it.
func (c *child) kill() error {
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.running.Done()
	return nil
}

// end sends SIGTERM, and kills the child if it has not ended in time.
func (c *child) end(within time.Duration) error {
	if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.running.Done():
		return nil
	case <-timer.C:
		return c.kill()
	}
}

func (c *child) signal(s os.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to process %d: %w", s, c.cmd.Process.Pid, err)
	}
	return nil
}
