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

// child is one run of a server's program.
type child struct {
	cmd     *exec.Cmd
	running context.Context // done when the child has ended and been waited for
}

// spawn starts cmd in a process group of its own, so that a Ctrl-C at the terminal reaches the parent alone, which then
// stops its servers in order.
//
// On Linux the child asks the kernel for SIGKILL when its parent dies. The kernel takes "parent" to be the *thread*
// that forked, and Go ends threads as it likes; so that thread stays locked to this goroutine until the child is gone.
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
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
		}
	}()
	return c, <-started
}

// state says how the child ended. Only when it is no longer running.
func (c *child) state() string { return c.cmd.ProcessState.String() }

// kill ends the child with SIGKILL and waits for it.
func (c *child) kill() error {
	if err := c.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.running.Done()
	return nil
}

// end asks the child to end and kills it when it has not done so in time.
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
