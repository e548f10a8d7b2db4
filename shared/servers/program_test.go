package servers

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
)

// programVariable makes this test binary a program that listens on the address in it.
const programVariable = "WEIR_SERVERS_TEST_PROGRAM"

// programMain responds to /ready until SIGTERM, and then exits with the code in its last argument.
func programMain(addr string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: time.Second}
	go func() {
		<-ctx.Done()
		if os.Args[len(os.Args)-1] == "fail" {
			os.Exit(3)
		}
		_ = server.Close()
	}()
	_ = server.ListenAndServe()
}

func startProgram(t *testing.T, path string, last string) *Program {
	t.Helper()
	p, err := StartProgram(t.Context(), ProgramOptions{
		Name: "program", Path: os.Args[0], Ports: []int{0},
		Options: Options{Dir: t.TempDir()},
		Args: func(addrs []string) []string {
			t.Setenv(programVariable, addrs[0])
			return []string{last}
		},
		Ready: func(addrs []string) string { return "http://" + addrs[0] + path },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestAProgramIsKilledRestartedAndEnded(t *testing.T) {
	p := startProgram(t, "/ready", "")
	addr := p.Addrs()[0]
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "its port is closed", func() error { return refused(addr) })
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Addrs()[0] != addr {
		t.Errorf("it came back on %s, was on %s", p.Addrs()[0], addr)
	}
	if err := p.End(5 * time.Second); err != nil {
		t.Error(err)
	}
}

func TestEndTellsABadExit(t *testing.T) {
	p := startProgram(t, "/ready", "fail")
	if err := p.End(5 * time.Second); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("End: %v", err)
	}
}

func TestAProgramThatIsNeverReadyIsAnError(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := StartProgram(ctx, ProgramOptions{
		Name: "program", Path: os.Args[0], Ports: []int{0}, Options: Options{Dir: t.TempDir()},
		Args: func(addrs []string) []string {
			t.Setenv(programVariable, addrs[0])
			return nil
		},
		Ready: func(addrs []string) string { return "http://" + addrs[0] + "/nowhere" },
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "start program: not ready") {
		t.Errorf("%v", err)
	}
}
