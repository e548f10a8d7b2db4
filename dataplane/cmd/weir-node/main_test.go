package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
)

// TestMain lets the test binary be weir-node itself, so that the tests below start
// the real main in a real process.
func TestMain(m *testing.M) {
	if os.Getenv("BE_WEIR_NODE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a running weir-node.
type process struct {
	*exec.Cmd
	firstLine string // of stdout
	log       *await.Log
	ended     chan struct{}
}

// begin starts weir-node with no configuration but free ports instead of its own,
// and waits for its first line.
func begin(t *testing.T, env ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0]), log: new(await.Log), ended: make(chan struct{})}
	p.Env = append(env, "BE_WEIR_NODE=1", "WEIR_LISTEN=127.0.0.1:0", "WEIR_GRPC_LISTEN=127.0.0.1:0", "WEIR_ADMIN_LISTEN=127.0.0.1:0", "PATH="+os.Getenv("PATH"))
	p.Stderr = p.log
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.firstLine, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = p.Wait()
		t.Fatalf("no first line: %v\n%s", err, p.log)
	}
	go func() { _ = p.Wait(); close(p.ended) }()
	t.Cleanup(func() { _ = p.Process.Kill(); <-p.ended })
	return p
}

// wait returns how the process ended.
func (p *process) wait(t *testing.T) syscall.WaitStatus {
	t.Helper()
	select {
	case <-p.ended:
		return p.ProcessState.Sys().(syscall.WaitStatus)
	case <-time.After(await.Patience):
		t.Fatalf("still running\n%s", p.log)
		panic("unreachable")
	}
}

// Without any configuration the node serves, reports that it is on its own, and suggests a command that works. SIGTERM
// ends it with exit code 0.
func TestWithoutConfiguration(t *testing.T) {
	p := begin(t)
	parts := regexp.MustCompile(`^weir-node is serving in memory\. Try: curl (\S+) -H 'Content-Type: application/json' -d '(.+)'\n$`).FindStringSubmatch(p.firstLine)
	if parts == nil {
		t.Fatalf("first line of stdout is %q", p.firstLine)
	}
	var answer struct {
		Allowed   bool
		Remaining string
		Source    string
	}
	post(t, parts[1], parts[2], &answer)
	if !answer.Allowed || answer.Remaining != "9" || answer.Source != "SOURCE_LOCAL" {
		t.Errorf("answer is %+v, want allowed with 9 remaining", answer)
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	if status := p.wait(t); !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("after SIGTERM: %v\n%s", p.ProcessState, p.log)
	}
	first, _, _ := strings.Cut(p.log.String(), "\n")
	if !strings.Contains(first, "starting alone: no Redis and no MySQL are configured") || !strings.Contains(first, "in memory") {
		t.Errorf("first log line is %s", first)
	}
}

// A second signal ends a drain that takes long, at once.
func TestSecondSignal(t *testing.T) {
	p := begin(t, "WEIR_DRAIN_DELAY=5m")
	_ = p.Process.Signal(syscall.SIGINT)
	await.True(t, "a drain begins", func() bool { return strings.Contains(p.log.String(), `"draining"`) })
	// The signal's deadly meaning comes back a moment after the drain began.
	repeat := time.NewTicker(10 * time.Millisecond)
	defer repeat.Stop()
	for running := true; running; {
		_ = p.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
			running = false
		case <-repeat.C:
		}
	}
	if status := p.wait(t); status.Exited() && status.ExitStatus() == 0 {
		t.Error("a drain that was broken off looks like a clean one")
	}
}

// A configuration that is at fault ends the process with exit code 2, and a word
// about the fault.
func TestFaultyConfiguration(t *testing.T) {
	p := exec.CommandContext(t.Context(), os.Args[0])
	p.Env = []string{"BE_WEIR_NODE=1", "WEIR_LISTEN=:7001", "WEIR_REDIS_URL=redis://127.0.0.1:1"}
	output, _ := p.CombinedOutput()
	if p.ProcessState.ExitCode() != 2 || !bytes.Contains(output, []byte("weir-node: listen is \":7001\"")) || !bytes.Contains(output, []byte("weir-node: region is empty: set WEIR_REGION")) {
		t.Errorf("exit code %d\n%s", p.ProcessState.ExitCode(), output)
	}
}

func post(t *testing.T, url, body string, answer any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	if err := json.Unmarshal(content, answer); response.StatusCode != 200 || err != nil {
		t.Fatalf("status %d %s", response.StatusCode, content)
	}
}
