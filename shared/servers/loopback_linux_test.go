package servers

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// "child processes on loopback": the test checks every socket of the servers in the kernel's tables.
func TestOnlyLoopbackListeners(t *testing.T) {
	t.Parallel()
	EachSQL(t, testOnlyLoopbackListeners)
}

func testOnlyLoopbackListeners(t *testing.T) {
	t.Parallel()
	m, redis, restate := SharedSQL(t), RedisForTest(t), RestateForTest(t)
	for _, c := range []struct {
		server *Process
		ports  int
	}{{m.Process, 1}, {redis.Process, 1}, {restate.Process, 3}} {
		addrs := listeners(t, c.server.PID())
		if len(addrs) != c.ports {
			t.Errorf("%s listens on %v, want %d addresses", c.server.name, addrs, c.ports)
		}
		for _, addr := range addrs {
			if !addr.Addr().IsLoopback() {
				t.Errorf("%s listens on %s", c.server.name, addr)
			}
		}
	}
}

// The check above would notice.
func TestListenersSeesWildcard(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	for _, addr := range listeners(t, os.Getpid()) {
		if addr.Addr().IsUnspecified() {
			return
		}
	}
	t.Error("a listener on every interface goes unseen")
}

// listeners returns the addresses of a process's TCP sockets that listen.
func listeners(t *testing.T, pid int) []netip.AddrPort {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	must(t, err)
	sockets := make(map[string]bool) // "socket:[inode]"
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "socket:") {
			sockets[target] = true
		}
	}
	if len(sockets) == 0 {
		t.Fatalf("process %d has no sockets that we may see", pid)
	}
	var found []netip.AddrPort
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		must(t, err)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			const listening = "0A"
			fields := strings.Fields(lines.Text()) // slot, local address, remote address, state, …, inode
			if len(fields) > 9 && fields[3] == listening && sockets["socket:["+fields[9]+"]"] {
				found = append(found, kernelAddr(t, fields[1]))
			}
		}
		must(t, f.Close())
	}
	return found
}

// kernelAddr reads 0100007F:1F90: 32-bit words in the machine's byte order, little-endian wherever we run, and the
// port.
func kernelAddr(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	var bytes []byte
	var number uint16
	_, err := fmt.Sscanf(strings.Replace(text, ":", " ", 1), "%x %x", &bytes, &number)
	must(t, err)
	for word := 0; word+4 <= len(bytes); word += 4 {
		b := bytes[word : word+4]
		b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	}
	addr, ok := netip.AddrFromSlice(bytes)
	if !ok {
		t.Fatalf("no address: %s", text)
	}
	return netip.AddrPortFrom(addr.Unmap(), number)
}
