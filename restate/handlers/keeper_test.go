package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

func (c *cluster) keeper(jobs map[string]time.Duration) *Keeper {
	return &Keeper{
		// longer than a busy machine is late
		Registrar: c.registrar(), Client: c.client, Jobs: jobs, Every: 300 * time.Millisecond, Grace: 3 * time.Second,
		Metrics: c.options.Metrics, Log: slog.New(slog.DiscardHandler),
	}
}

// A chain can still die, so Keeper calls Ensure for as long as the process lives.
func TestKeeperRevivesADeadChain(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{ChainGrace: 3 * time.Second}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	k := c.keeper(map[string]time.Duration{"n": 200 * time.Millisecond})
	if err := k.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "two runs", n.reached(2))
	await.NoError(t, "a scheduled tick to kill", func() error {
		ids := c.ticks("n")
		if len(ids) != 1 {
			return fmt.Errorf("ticks %v", ids)
		}
		c.admin(http.MethodPatch, "/invocations/"+ids[0]+"/kill", nil, nil)
		if ids = c.ticks("n"); len(ids) != 0 {
			return fmt.Errorf("ticks %v are left", ids)
		}
		return nil
	})
	dead := c.status("n")
	if !dead.Running {
		t.Fatalf("%+v", dead)
	}
	runs := n.count()
	await.NoError(t, "the keeper revives it", func() error {
		if err := k.Once(t.Context()); err != nil {
			return err
		}
		return n.reached(runs + 2)()
	})
	s := c.status("n")
	if s.Generation <= dead.Generation || len(c.ticks("n")) > 1 {
		t.Errorf("generation %d after %d, ticks %v", s.Generation, dead.Generation, c.ticks("n"))
	}
	// once, or again if the machine is so busy that the new chain is late as well
	repairs := metric(t, c.options.Metrics, "weir_control_chain_repairs_total", "")
	if want := float64(s.Generation - dead.Generation); repairs != want {
		t.Errorf("weir_control_chain_repairs_total is %v, want %v", repairs, want)
	}
}

// "Restate can be down for any time, come back empty": the keeper was started first.
func TestKeeperOutlivesRestate(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	if err := c.restate.Stop(); err != nil { // its data is deleted
		t.Fatal(err)
	}
	k := c.keeper(map[string]time.Duration{"n": 200 * time.Millisecond})
	if err := k.Once(t.Context()); !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "--restate-admin") {
		t.Errorf("with Restate down: %v", err)
	}
	c.options.Metrics.RestateUp(true)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	await.NoError(t, "the outage is told", metricReached(t, c.options.Metrics, "weir_control_dependency_up", "restate", 0))

	empty, err := servers.StartRestate(t.Context(), servers.RestateOptions{IngressPort: port(t, c.restate.IngressURL()), AdminPort: port(t, c.restate.AdminURL())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := empty.Stop(); err != nil {
			t.Error(err)
		}
	})
	await.NoError(t, "registered, started and running", n.reached(2))
	await.NoError(t, "the end of the outage is told", metricReached(t, c.options.Metrics, "weir_control_dependency_up", "restate", 1))
}

// metric returns the value of a counter or gauge; if it has labels, for the given value.
func metric(t *testing.T, m *controlplane.Metrics, name, label string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			labels := one.GetLabel()
			if f.GetName() == name && (len(labels) == 0 || labels[0].GetValue() == label) {
				return one.GetCounter().GetValue() + one.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %s", name, label)
	return 0
}

func metricReached(t *testing.T, m *controlplane.Metrics, name, label string, want float64) func() error {
	return func() error {
		if got := metric(t, m, name, label); got != want {
			return fmt.Errorf("%s is %v, want %v", name, got, want)
		}
		return nil
	}
}

func port(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
