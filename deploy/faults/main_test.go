package faults

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane/node/nodecmd"
	"github.com/weirhq/weir/shared/servers"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		os.Exit(play(name))
	}
	if os.Getenv(programEnv) != "" {
		os.Exit(nodecmd.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(servers.ShareSQL(m))
}

// soak selects the short form of a test, or the long form, which make soak runs: for example 20 s or an hour.
func soak[T any](short, long T) T {
	if os.Getenv("WEIR_SOAK") != "" {
		return long
	}
	return short
}

// pause lets time pass on real servers during a load, because a fault must last.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
