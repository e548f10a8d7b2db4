package handlers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// keepTimeout bounds one round. A round that Restate does not answer must not hold up
// the next: it may have come back meanwhile.
const keepTimeout = 20 * time.Second

// Keeper sees to it, from outside Restate, that Restate knows our handlers and that
// every job's chain and the rollout under way are alive: at the start of the process and for as long as it lives.
// Restate may be down for any time, come back empty, or have given up on a chain.
type Keeper struct {
	Registrar *Registrar
	Client    *Client
	Jobs      map[string]time.Duration // interval of each job
	Retiring  []string                 // tables whose retirements are looked after
	Every     time.Duration            // time between two rounds; sooner while something is wrong
	Grace     time.Duration            // as Options.ChainGrace; 0: its default
	Metrics   *controlplane.Metrics
	Log       *slog.Logger

	// Tunings are the rollouts that wrote the newest versions of the tuning, as many as rows:
	// what Restate may have lost. nil: not known.
	Tunings func(ctx context.Context, rows int) ([]controlplane.TuningTrace, error)

	// Of the last round, so that an outage is two lines in the log.
	problem    string
	registered Registered
	revived    revival
}

// Run makes rounds until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	controlplane.Every(ctx, k.Every, func(ctx context.Context) error {
		err := k.Once(ctx)
		if ctx.Err() == nil {
			k.tell(err)
		}
		return err
	})
}

// Once is one round. Each job, each retirement and the rollout is looked after, whatever
// is wrong with the others, all at once: one that Restate does not answer must not use
// up the time of the rest. The error has all that was wrong.
func (k *Keeper) Once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	did, err := k.Registrar.Register(ctx)
	if err != nil && k.registered == "" {
		return err // Restate does not know the handlers that the rest would call
	}
	if err == nil {
		k.tellRegistered(did)
	}
	tasks := []func(context.Context) error{k.ensureRollout}
	for _, job := range slices.Sorted(maps.Keys(k.Jobs)) {
		tasks = append(tasks, func(ctx context.Context) error { return k.ensure(ctx, job, k.Jobs[job]) })
	}
	for _, table := range k.Retiring {
		tasks = append(tasks, func(ctx context.Context) error { return k.ensureRetirement(ctx, table) })
	}
	return errors.Join(err, together(ctx, tasks))
}

// together does all tasks at once and joins their errors, in the order of the tasks.
func together(ctx context.Context, tasks []func(context.Context) error) error {
	var under sync.WaitGroup
	wrong := make([]error, len(tasks))
	for i, task := range tasks {
		under.Go(func() { wrong[i] = task(ctx) })
	}
	under.Wait()
	return errors.Join(wrong...)
}

// ensureRetirement looks first, as ensure does.
func (k *Keeper) ensureRetirement(ctx context.Context, table string) error {
	client := RetirementClient{k.Client}
	r, err := client.Status(ctx, table)
	if errors.Is(err, controlplane.ErrNotFound) {
		return nil // it has never been retired
	}
	if err != nil {
		return err
	}
	if r.Overdue(time.Now().UnixMilli(), cmp.Or(k.Grace, retirementGrace)) {
		after, err := client.Ensure(ctx, table)
		if err != nil {
			return err
		}
		if after.Epoch != r.Epoch {
			k.Log.Info("retirement goes on", "table", table, "phase", string(after.Phase))
			k.Metrics.ChainRepaired()
		}
		r = after
	}
	k.Metrics.Retirement(&r)
	return nil
}

func (k *Keeper) tellRegistered(did Registered) {
	switch {
	case did == RegisteredNew || did == RegisteredReplaced:
		k.Log.Info("registered with Restate", "uri", k.Registrar.uri, "deployment", did, "fingerprint",
			k.Registrar.fingerprint)
	case did == RegisteredByOther && k.registered != did:
		k.Log.Warn("another build has registered its handlers at this address: stop the older one", "uri",
			k.Registrar.uri)
	}
	k.registered = did
}

// ensure looks first: the look waits for nothing, while Ensure itself takes its turn
// behind a run and leaves a journal.
func (k *Keeper) ensure(ctx context.Context, job string, interval time.Duration) error {
	s, err := k.Client.Status(ctx, job)
	if err != nil {
		return err
	}
	dead := s.dead(time.Now().UnixMilli(), cmp.Or(k.Grace, defaultGrace))
	if dead || s.wantsChain(interval) {
		after, err := k.Client.Ensure(ctx, job, interval)
		if err != nil {
			return err
		}
		if after.Generation != s.Generation {
			k.Log.Info("schedule started", "job", job, "interval", interval.String(), "had_died", dead)
			if dead {
				k.Metrics.ChainRepaired()
			}
		}
		s = after
	}
	if job == CleanupJob {
		k.Metrics.CleanupPaused(s.Pause != nil)
	}
	return nil
}

// tell logs and counts how a round went.
func (k *Keeper) tell(err error) {
	k.Metrics.RestateUp(err == nil)
	switch {
	case err != nil && k.problem == "":
		k.Log.Warn("cannot keep the schedules", "error", err, "effect", "expired rows stay until this is fixed")
		k.problem = err.Error()
	case err == nil && k.problem != "":
		k.Log.Info("schedules are kept again")
		k.problem = ""
	}
}
