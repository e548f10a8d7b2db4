package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/shared/servers"
)

// The node that relays a region is killed with SIGKILL, at 600 requests a second: another node of the region takes
// over, and nothing that the region accepts meanwhile is lost or counted twice.
func TestSoakRelayIsKilled(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testSoakRelayIsKilled)
}

func testSoakRelayIsKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{})
	eu := f.region("eu")
	var took recovery
	l := load{perSecond: 150, keys: 100}
	for range soak(1, 10) {
		for _, n := range eu.nodes {
			must(t, n.relay.Stop(t.Context()))
		}
		relays := eu.startProcess()
		eu.start() // has a relay that waits for its turn
		stop := l.start(t, f.regions...)
		stopWatch := f.watch()
		pause(t.Context(), time.Second)
		must(t, relays.Process.Kill())
		took = f.recovered(time.Now(), 0)
		stop()
		stopWatch()
	}
	f.settle("the relay's node killed", took, allowance{})
}

// process is a node in its own process, without callers.
type process struct{ Region, NodeID, Redis, DSN string }

// startProcess adds a node in a process of its own to the region, and returns once it relays the region.
func (r *region) startProcess() *exec.Cmd {
	t := r.fleet.t
	t.Helper()
	cmd, out := startChild(t, nodeRole, &process{r.name, r.nextID(), r.redis.Addr(), r.fleet.dsn})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the process relays nothing: %q, %v", line, err)
	}
	return cmd
}

// main runs the node until it is killed, or its parent has ended.
func (p *process) main() error {
	origin, err := redisorigin.Open([]string{"redis://" + p.Redis}, originOptions())
	if err != nil {
		return err
	}
	db, err := mysqlcounts.Open(p.DSN)
	if err != nil {
		return err
	}
	counts := mysqlcounts.New(db, mysqlcounts.Options{})
	limiter, err := dataplane.New(dataplane.Config{Region: p.Region, NodeID: p.NodeID, Origin: origin, Settings: counts})
	if err != nil {
		return err
	}
	relays, err := relay.New(relayConfig(p.Region, p.NodeID, limiter, origin, counts))
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := errors.Join(limiter.Start(ctx), relays.Start(ctx)); err != nil {
		return err
	}
	for tick := time.NewTicker(10 * time.Millisecond); !relays.Leads(); <-tick.C {
		continue
	}
	fmt.Println("relays")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
