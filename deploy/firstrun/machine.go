package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// machine is a bare Debian in a directory, with a clone of the repository in /weir. It
// shares this machine's network, kernel and nothing else.
type machine struct {
	root string
	env  []string
}

func newMachine(ctx context.Context, root, suite string, node bool) (machine, error) {
	m := machine{root: root, env: []string{"HOME=/root",
		"PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	// How this machine reaches the registries, where it needs to be told.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
		"GOPROXY", "GOSUMDB", "npm_config_registry", "NODE_EXTRA_CA_CERTS"} {
		if value, ok := os.LookupEnv(name); ok {
			m.env = append(m.env, name+"="+value)
		}
	}
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return m, fmt.Errorf("where Go is: %w", err)
	}
	steps := [][]string{
		// Mounts below it are its own, and are gone whenever it ends.
		{"unshare", "--mount", "mmdebstrap", "--quiet", "--variant=apt", "--include=ca-certificates,curl,git,make",
			suite, root},
		{"cp", "/etc/ssl/certs/ca-certificates.crt", m.at("etc/ssl/certs/ca-certificates.crt")},
		{"sh", "-c", "echo 127.0.0.1 localhost >" + m.at("etc/hosts")}, // as every installation does
		{"cp", "-r", strings.TrimSpace(string(goroot)), m.at("usr/local/go")},
		{"git", "clone", "--quiet", "--no-hardlinks", ".", m.at("weir")},
	}
	if node {
		steps = append(steps, m.nodeSteps(ctx)...)
	}
	for _, step := range steps {
		if out, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput(); err != nil {
			return m, fmt.Errorf("%s: %w\n%s", strings.Join(step, " "), err, out)
		}
	}
	return m, nil
}

func (m machine) at(path string) string { return filepath.Join(m.root, path) }

// nodeSteps give the machine this one's Node, as its own packages would.
func (m machine) nodeSteps(ctx context.Context) [][]string {
	program, _ := exec.LookPath("node")
	packages, _ := exec.CommandContext(ctx, "npm", "root", "--global").Output()
	return [][]string{
		{"cp", "--dereference", program, m.at("usr/local/bin/node")},
		{"mkdir", "-p", m.at("usr/local/lib/node_modules")},
		{"cp", "-r", filepath.Join(strings.TrimSpace(string(packages)), "npm"), m.at("usr/local/lib/node_modules/npm")},
		{"ln", "-s", "../lib/node_modules/npm/bin/npm-cli.js", m.at("usr/local/bin/npm")},
	}
}

// command runs on the machine, in the clone. What it leaves behind ends with it, by a
// process namespace of its own.
func (m machine) command(ctx context.Context, words ...string) *exec.Cmd {
	args := append([]string{"--mount", "--pid", "--fork", "--kill-child", "--root=" + m.root, "--wd=/weir", "--mount-proc",
		"env", "-i"}, m.env...)
	return exec.CommandContext(ctx, "unshare", append(args, words...)...)
}

// running is `make run` on the machine.
type running struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // once it has ended

	mu      sync.Mutex
	printed strings.Builder
	more    chan struct{} // has room for one: something was printed
}

func (m machine) makeRun(ctx context.Context) (*running, error) {
	r := &running{cmd: m.command(ctx, "sh", "-c", "make run || exit"), ended: make(chan struct{}),
		more: make(chan struct{}, 1)}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.Stderr = os.Stderr
	said, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("make run: %w", err)
	}
	go func() {
		lines(said, r.heard)
		r.err = r.cmd.Wait()
		close(r.ended)
	}()
	return r, nil
}

func (r *running) heard(line string) {
	fmt.Println(line)
	r.mu.Lock()
	r.printed.WriteString(line + "\n")
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// introduced waits until all has been printed that there is to try.
func (r *running) introduced(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	for {
		r.mu.Lock()
		printed := r.printed.String()
		r.mu.Unlock()
		if curl.MatchString(printed) && console.MatchString(printed) {
			return printed, nil
		}
		select {
		case <-r.more:
		case <-r.ended:
			return "", fmt.Errorf("`make run` ended early: %w", r.err)
		case <-ctx.Done():
			return "", fmt.Errorf("wait for `make run`: %w", ctx.Err())
		}
	}
}

// stop is Ctrl-C, which reaches everything in the group.
func (r *running) stop() error {
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("Ctrl-C: %w", err)
	}
	select {
	case <-r.ended: // make reports the interrupt as its error
		return nil
	case <-time.After(time.Minute):
		return errors.Join(errors.New("a minute after Ctrl-C something still ran"), r.cmd.Process.Kill())
	}
}

// lines calls heard for each line of r until its end.
func lines(r io.Reader, heard func(string)) {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		heard(string(bytes.TrimRight(scanner.Bytes(), "\r")))
	}
}
