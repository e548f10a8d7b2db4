package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/await"
)

// newWatchCluster watches a world whose lag the test sets, and that has nothing else.
func newWatchCluster(t *testing.T, lag *atomic.Int64) *cluster {
	t.Helper()
	watch := watch.New(watch.Sources{
		Fleet:   func(context.Context) (fleet.Fleet, error) { return fleet.Fleet{}, nil },
		Tunings: func(context.Context) ([]tunings.RegionTuning, error) { return nil, nil },
		Lag:     func(context.Context) (time.Duration, error) { return time.Duration(lag.Load()), nil },
		Partitions: func(context.Context) (cleanup.PartitionsProblem, error) {
			return cleanup.PartitionsProblem{}, nil
		},
		Cleanup:     func(context.Context) (cleanup.Status, error) { return cleanup.Status{}, nil },
		Rollout:     func(context.Context) (*rollout.Rollout, error) { return nil, nil },
		Retirement:  func(context.Context) (*retire.Retirement, error) { return nil, nil },
		Invocations: func(context.Context) ([]watch.Invocation, error) { return nil, nil },
	})
	return newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{WatchJob: watchJob(watch, s)} })
}

// The watch keeps one document in its object: a finding that goes on keeps its since from tick to tick, through a kill
// -9 of Restate and a change of the handlers' process.
func TestWatchKeepsADocument(t *testing.T) {
	t.Parallel()
	var lag atomic.Int64
	c := newWatchCluster(t, &lag)
	if d, err := c.client.Health(t.Context()); err != nil || d.AtMs != 0 {
		t.Errorf("before the first look: %+v, %v", d, err)
	}
	lag.Store(int64(3 * time.Hour))
	if _, err := c.client.Start(t.Context(), WatchJob, intervalMin); err != nil {
		t.Fatal(err)
	}
	after := func(atMs int64) (d watch.HealthDocument) {
		t.Helper()
		await.NoError(t, "a newer look", func() (err error) {
			if d, err = c.client.Health(t.Context()); err == nil && d.AtMs <= atMs {
				err = fmt.Errorf("%+v", d)
			}
			return err
		})
		return d
	}
	first := after(0)
	if first.Overall != watch.SeverityCritical || len(first.Findings) != 1 {
		t.Fatalf("%+v", first)
	}
	// On a busy machine this may be the second look already.
	if f := first.Findings[0]; f.Kind != watch.FindingCleanupLag || f.SinceMs < 1 || f.SinceMs > first.AtMs {
		t.Fatalf("%+v", first)
	}
	c.crash()
	c.down()
	c.up()
	second := after(first.AtMs)
	if second.Findings[0].SinceMs != first.Findings[0].SinceMs {
		t.Errorf("since %d, want %d", second.Findings[0].SinceMs, first.Findings[0].SinceMs)
	}
	lag.Store(0)
	await.NoError(t, "it is over", func() error {
		if d := after(0); d.Overall != watch.SeverityOK {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	if s := c.status(WatchJob); s.Errors != 0 || len(s.History) == 0 || s.History[0].Report.Note != "ok" {
		t.Errorf("%+v", s)
	}
}

// Restate lists which invocations back off, how often they have failed and why, without healthy invocations and other
// services.
func TestTroubledInvocations(t *testing.T) {
	t.Parallel()
	healthy := make(chan struct{})
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job {
		return map[string]Job{
			"sick": {Run: func(restate.ObjectContext) (Report, error) {
				select {
				case <-healthy:
					return Report{}, nil
				default:
					return Report{}, errors.New("table is gone")
				}
			}},
		}
	})
	admin := NewAdmin(c.http, c.restate.AdminURL()+"/")
	if troubled, err := admin.Troubled(t.Context()); err != nil || len(troubled) != 0 {
		t.Errorf("%+v, %v", troubled, err)
	}
	if _, err := c.client.Start(t.Context(), "sick", time.Hour); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "it backs off", func() error {
		troubled, err := admin.Troubled(t.Context())
		if err != nil || len(troubled) != 1 || troubled[0].Retries < 3 {
			return fmt.Errorf("%+v, %w", troubled, err)
		}
		if i := troubled[0]; i.ID == "" || i.Paused || i.Target != "WeirCron/sick/Tick" || i.SinceMs == 0 || !strings.Contains(i.Failure, "table is gone") {
			t.Fatalf("%+v", i)
		}
		return nil
	})
	close(healthy)
	await.NoError(t, "it is over", func() error {
		if troubled, err := admin.Troubled(t.Context()); err != nil || len(troubled) != 0 {
			return fmt.Errorf("%+v, %w", troubled, err)
		}
		return nil
	})
}

// A document of a newer build is rejected.
func TestWatchRefusesANewerDocument(t *testing.T) {
	t.Parallel()
	var lag atomic.Int64
	c := newWatchCluster(t, &lag)
	c.down()
	c.jobs = func(s *stepper) map[string]Job {
		return map[string]Job{WatchJob: {Run: func(ctx restate.ObjectContext) (Report, error) {
			restate.Set(ctx, documentKey, watch.HealthDocument{Version: 99})
			return Report{}, nil
		}}}
	}
	c.up()
	if _, err := c.client.TriggerNow(t.Context(), WatchJob, operator); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Health(t.Context()); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("%v", err)
	}
}
