package nodecmd

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir/shared/await"
)

// Any number of callers that wait for overrides leave connections for the node's own work with MySQL. In this test a
// server that never answers holds the callers' connections.
func TestCallersForOverridesLeaveConnectionsToTheNode(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			all.Go(func() {
				_, _ = io.Copy(io.Discard, conn) // until the node closes it
				open.Add(-1)
				_ = conn.Close()
			})
		}
	})
	s, err := openStores(Config{MySQLDSN: "weir@tcp(" + listener.Addr().String() + ")/weir", V2Overrides: true},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 100 {
		all.Go(func() { _, _, _ = s.overrides.Get(ctx, "acme", "api", "ann") })
	}
	await.True(t, "callers have their connections", func() bool { return open.Load() == overrideConnsMax })
	all.Go(func() { _, _ = s.settings.Settings(ctx, "eu") })
	await.True(t, "the node has another one", func() bool { return open.Load() == overrideConnsMax+1 })
	cancel()
	_ = listener.Close()
	s.close()
	all.Wait()
}
