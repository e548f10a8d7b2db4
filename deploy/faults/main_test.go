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
	if spec := os.Getenv(processEnv); spec != "" {
		os.Exit(beProcess(spec))
	}
	if spec := os.Getenv(holdersEnv); spec != "" {
		os.Exit(beHolders(spec))
	}
	if spec := os.Getenv(clientEnv); spec != "" {
		os.Exit(beClient(spec))
	}
	if os.Getenv(programEnv) != "" {
		os.Exit(nodecmd.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(servers.ShareSQL(m))
}

// soak chooses between the short form of a test and the long one, which make soak runs.
func soak[T any](short, long T) T {
	if os.Getenv("WEIR_SOAK") != "" {
		return long
	}
	return short
}

// pause lets time pass on real servers, while a load goes on: a fault has to last.
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
