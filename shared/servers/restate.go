package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const restateConfigName = "restate.toml"

// Restate is a running Restate server: one provisioned node. Everything that it has acknowledged survives Kill and
// Restart.
type Restate struct {
	*Process
	ingress, admin, fabric *port
}

// RestateOptions are the differences to the configuration that operators use, restate/server/restate.toml of this
// repository.
type RestateOptions struct {
	Options // but not Port, because there are three

	// Ports on 127.0.0.1. 0 means a free port, which stays the same across restarts.
	IngressPort, AdminPort, FabricPort int
	// ConfigFile replaces restate/server/restate.toml, which is searched from the working directory upwards.
	ConfigFile string
	// Env are settings of the form RESTATE_…=value, which override the file. RESTATE_ variables of this process do not
	// reach the server.
	Env []string
}

// StartRestate starts a server and returns when all of its partitions answer. ctx bounds only the start. End the server
// with Stop.
func StartRestate(ctx context.Context, o RestateOptions) (*Restate, error) {
	return startRestate(ctx, o, (*Restate).probe)
}

// startRestate starts a server and returns when the probe succeeds.
func startRestate(ctx context.Context, o RestateOptions,
	probe func(*Restate, context.Context) error) (*Restate, error) {
	if o.Port != 0 {
		return nil, errors.New("start restate: Port is set; use IngressPort, AdminPort and FabricPort")
	}
	program, err := FindRestate()
	if err != nil {
		return nil, fmt.Errorf("start restate: %w", err)
	}
	config, err := restateConfig(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("start restate: %w", err)
	}
	p, err := newProcess("restate", o.Options)
	if err != nil {
		return nil, fmt.Errorf("start restate: %w", err)
	}
	r := &Restate{Process: p, ingress: newPort(o.IngressPort), admin: newPort(o.AdminPort), fabric: newPort(o.FabricPort)}
	p.ports = []*port{r.ingress, r.admin, r.fabric}
	p.command = func() *exec.Cmd {
		args := []string{"--config-file", config, "--base-dir", p.Dir(), "--no-logo"}
		cmd := exec.Command(program, append(args, o.Args...)...)
		cmd.Env = r.environment(o)
		return cmd
	}
	p.probe = func(ctx context.Context) error { return probe(r, ctx) }
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return r, nil
}

// IngressURL returns the address for invocations: http://127.0.0.1:port.
func (r *Restate) IngressURL() string { return "http://" + r.ingress.addr() }

// AdminURL returns the address for registering deployments and querying state, and of the server's user interface.
func (r *Restate) AdminURL() string { return "http://" + r.admin.addr() }

// FabricURL returns the address for connections between nodes, with the server's Prometheus metrics at /metrics.
func (r *Restate) FabricURL() string { return "http://" + r.fabric.addr() }

func restateConfig(given string) (string, error) {
	if given == "" {
		home, err := restateHome()
		if err != nil {
			return "", fmt.Errorf("find the configuration: %w", err)
		}
		return filepath.Join(home, restateConfigName), nil
	}
	path, err := filepath.Abs(given) // the server runs in its own directory
	if err == nil {
		_, err = os.Stat(path)
	}
	return path, err
}

// environment returns this process's environment without settings of the server, and adds the differences to the file.
func (r *Restate) environment(o RestateOptions) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RESTATE_") && !strings.HasPrefix(v, "RUST_LOG=") {
			env = append(env, v)
		}
	}
	env = append(env, o.Env...)
	return append(env,
		"RESTATE_BIND_PORT="+strconv.Itoa(r.fabric.number),
		"RESTATE_ADMIN__BIND_PORT="+strconv.Itoa(r.admin.number),
		"RESTATE_INGRESS__BIND_PORT="+strconv.Itoa(r.ingress.number),
	)
}

// probe is stricter than the server's health checks, which succeed while no partition has a leader and calls hang: it
// queries all partitions. It uses two of our ports, which no other server has together.
func (r *Restate) probe(ctx context.Context) error {
	if _, err := call(ctx, plainClient(), http.MethodGet, r.IngressURL()+"/restate/health", ""); err != nil {
		return err
	}
	_, err := call(ctx, plainClient(), http.MethodPost, r.AdminURL()+"/query",
		`{"query":"SELECT count(id) FROM sys_invocation"}`)
	return err
}

// probeAlone checks only what a single node of several can answer.
func (r *Restate) probeAlone(ctx context.Context) error {
	_, err := call(ctx, plainClient(), http.MethodGet, r.AdminURL()+"/health", "")
	return err
}

// plainClient keeps no connections, which would outlive the test.
func plainClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// call returns the body of a 2xx response. Any other response is an error.
func call(ctx context.Context, client *http.Client, method, url, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	if res.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, res.Status, answer)
	}
	return answer, nil
}
