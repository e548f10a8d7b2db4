package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirhq/weir/shared/await"
)

// parentMain starts one server of each kind, prints "name pid address directory" for each, and waits to be killed.
func parentMain() {
	var all sync.WaitGroup
	var lines sync.Mutex
	for _, start := range kinds {
		all.Go(func() {
			p, err := start(context.Background(), 0)
			lines.Lock()
			defer lines.Unlock()
			if err != nil {
				fmt.Println("error", err)
				return
			}
			fmt.Println(p.name, p.PID(), p.ports[len(p.ports)-1].addr(), p.Dir())
		})
	}
	all.Wait()
	_, _ = io.Copy(io.Discard, os.Stdin) // ends only if the test that started us died
}

// "On Linux the kernel kills the servers when their parent dies for any reason, and the next process that starts a
// server removes their directories."
func TestServersDieWithTheirParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1")
	parent.Stderr = os.Stderr
	stdin, err := parent.StdinPipe()
	must(t, err)
	defer func() { _ = stdin.Close() }()
	stdout, err := parent.StdoutPipe()
	must(t, err)
	must(t, parent.Start())

	type server struct {
		name, addr, dir string
		pid             int
	}
	var servers []server
	for lines := bufio.NewScanner(stdout); len(servers) < len(kinds) && lines.Scan(); {
		var s server
		if _, err := fmt.Sscan(lines.Text(), &s.name, &s.pid, &s.addr, &s.dir); err != nil {
			t.Errorf("the parent says %q", lines.Text())
			break
		}
		if err := refused(s.addr); err == nil {
			t.Errorf("%s does not listen on %s", s.name, s.addr)
		}
		servers = append(servers, s)
		t.Cleanup(func() {
			if ended(s.pid) != nil { // the test has failed
				_ = syscall.Kill(s.pid, syscall.SIGKILL)
			}
		})
	}
	must(t, parent.Process.Kill())
	_ = parent.Wait()
	if len(servers) != len(kinds) {
		t.Fatalf("the parent started %v", servers)
	}

	for _, s := range servers {
		await.NoError(t, s.name+" dies with its parent", func() error { return errors.Join(ended(s.pid), refused(s.addr)) })
	}
	for _, s := range servers {
		await.NoError(t, "the directory of "+s.name+" is removed", func() error {
			removeAbandoned() // as the next start does
			return gone(s.dir)
		})
	}
}

// ended returns nil if a process is gone, or is a zombie.
func ended(pid int) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, state, _ := strings.Cut(string(status), ") ")
	if !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X") {
		return fmt.Errorf("process %d is in state %.1s", pid, state)
	}
	return nil
}
