package signals

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/shared/await"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEIR_SIGNALS_CHILD") != "" {
		child()
		return
	}
	// If the tests run under nohup, hangups are ignored, and children inherit that. A signal that is caught is neither
	// ignored here nor in children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	goleak.VerifyTestMain(m)
}

// child prints whether a hangup ends it and, after a hangup, whether it ignored the signal.
func child() {
	ignored := make(chan os.Signal, 1)
	ctx, stop := contextWith(context.Background(), func(s os.Signal) { ignored <- s }, os.Getenv("WEIR_SIGNALS_CHILD") == "terminal")
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		panic(err)
	}
	if signal.Ignored(syscall.SIGHUP) {
		_, _ = os.Stdout.WriteString("left alone")
		return
	}
	select {
	case <-ctx.Done():
		_, _ = os.Stdout.WriteString("ended")
	case s := <-ignored:
		_, _ = os.Stdout.WriteString("ignored " + s.String())
	}
}

// A hangup ends a program with a terminal. A program without a terminal reports it. Under nohup it stays ignored.
func TestWhatAHangupDoes(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		command  []string
		terminal string
		want     string
	}{
		"in a terminal":    {[]string{self}, "terminal", "ended"},
		"under a service":  {[]string{self}, "none", "ignored hangup"},
		"under nohup":      {[]string{"nohup", self}, "terminal", "left alone"},
		"nohup, a service": {[]string{"nohup", self}, "none", "left alone"},
	} {
		cmd := exec.CommandContext(t.Context(), test.command[0], test.command[1:]...)
		cmd.Env = append(os.Environ(), "WEIR_SIGNALS_CHILD="+test.terminal)
		out, err := cmd.Output()
		if err != nil || !strings.HasSuffix(string(out), test.want) {
			t.Errorf("%s: %q, %v, want %q", name, out, err, test.want)
		}
	}
}

// The first SIGTERM ends the context; signals that other programs reload by have no effect, before it and while the
// program drains.
func TestOtherSignalsHaveNoEffect(t *testing.T) {
	seen := make(chan os.Signal, 8)
	ctx, stop := contextWith(t.Context(), func(s os.Signal) { seen <- s }, false)
	defer stop()
	send := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2} {
		send(s)
		if got := <-seen; got != s {
			t.Errorf("%v arrived as %v", s, got)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("the context has ended before SIGTERM")
	}
	send(syscall.SIGTERM)
	await.True(t, "SIGTERM ends the context", func() bool { return ctx.Err() != nil })
	send(syscall.SIGHUP)
	if got := <-seen; got != syscall.SIGHUP {
		t.Errorf("while it drains, SIGHUP arrived as %v", got)
	}
	stop()
	stop() // a second time does nothing
}
