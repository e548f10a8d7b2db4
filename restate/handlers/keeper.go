package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// keepTimeout bounds a round. A round without an answer of Restate must not delay the next, because Restate may be back
// by then.
const keepTimeout = 20 * time.Second

// Keeper makes sure, from outside Restate, that Restate has the present handlers, and that every job's chain and the
// rollout under way are alive. It does so at the start of the process and for as long as the process lives, because
// Restate can be down for any time, come back empty, or give up on a chain.
type Keeper struct {
	Registrar *Registrar
	Client    *Client
	Jobs      map[string]time.Duration // interval of each job
	Retiring  []string                 // tables with retirements to check
	Every     time.Duration            // time between two rounds; less while there is a problem
	Grace     time.Duration            // see Options.ChainGrace; 0: its default
	Metrics   *controlplane.Metrics
	Log       *slog.Logger

	// Rollouts returns the newest rollouts in MySQL, at most rows, because Restate may have lost some. nil: they are
	// unknown.
	Rollouts func(ctx context.Context, rows int) ([]rollout.Trace, error)

	// Saves are the states of jobs in MySQL, because Restate may have lost some. nil: they are unknown.
	Saves controlplane.JobStates

	// Results of the last round, so that an outage makes only two lines in the log.
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

// Once is one round. It checks every job, every retirement and the rollout concurrently, so that a call without an
// answer does not use up the time of the others. It returns the errors of all.
func (k *Keeper) Once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	did, err := k.Registrar.Register(ctx)
	if err != nil && k.registered == "" {
		return err // Restate does not have the handlers that the other calls need
	}
	if did != "" {
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

// together runs all tasks concurrently and joins their errors, in the order of the tasks.
func together(ctx context.Context, tasks []func(context.Context) error) error {
	var under sync.WaitGroup
	wrong := make([]error, len(tasks))
	for i, task := range tasks {
		under.Go(func() { wrong[i] = task(ctx) })
	}
	under.Wait()
	return errors.Join(wrong...)
}

// ensureRetirement reads the status first, as ensure does.
func (k *Keeper) ensureRetirement(ctx context.Context, table string) error {
	client := RetirementClient{k.Client}
	r, err := client.Status(ctx, table)
	if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		return err
	}
	lost := k.savedLater(ctx, table, r.Saved)
	if lost || r.Overdue(time.Now().UnixMilli(), cmp.Or(k.Grace, retirementGrace)) {
		after, err := client.Ensure(ctx, table)
		if err != nil {
			return err
		}
		if after.Epoch != r.Epoch {
			k.Log.Info("retirement goes on", "table", table, "phase", string(after.Phase), "restate_had_lost_it", lost)
			k.Metrics.ChainRepaired()
		}
		r = after
	}
	if r.ID != "" {
		r.Record(k.Metrics)
	}
	return nil
}

// savedLater reports whether MySQL has a newer state of a table's retirement. If MySQL does not answer, it returns
// false, and the next round checks again.
func (k *Keeper) savedLater(ctx context.Context, table string, saved int64) bool {
	if k.Saves == nil {
		return false
	}
	s, err := k.Saves.JobState(ctx, controlplane.RetirementState(table))
	return err == nil && s.Saved > saved
}

func (k *Keeper) tellRegistered(did Registered) {
	switch {
	case did == RegisteredNew || did == RegisteredReplaced || did == RegisteredPromoted:
		k.Log.Info("registered with Restate", "uri", k.Registrar.uri, "deployment", did, "fingerprint",
			k.Registrar.fingerprint)
	case did == RegisteredTakenOver:
		k.Log.Warn("took over the calls of another address, which does not answer", "uri", k.Registrar.uri, "from",
			k.Registrar.from)
	case did == RegisteredByOther && k.registered != did:
		k.Log.Warn("another build has registered its handlers at this address: stop the older weir-control", "uri",
			k.Registrar.uri)
	}
	k.registered = did
}

// ensure reads the status first, because that does not wait, while Ensure itself waits for a run and leaves a journal.
func (k *Keeper) ensure(ctx context.Context, job string, interval time.Duration) error {
	s, err := k.Client.Status(ctx, job)
	if err != nil {
		return err
	}
	order, unread := k.newestOrder(ctx, job)
	if unread != nil && s.Version == 0 && job == CleanupJob {
		// An operator may have paused the job before Restate lost its data. Without MySQL the job could not run anyway.
		return fmt.Errorf("start job %s: MySQL does not answer, so an operator may have paused it: %w", job, unread)
	}
	dead, lost := s.dead(time.Now().UnixMilli(), cmp.Or(k.Grace, defaultGrace)), order.OrderedMs > s.ordered()
	if dead || lost || s.wantsChain(interval) {
		after, err := k.Client.restore(ctx, job, interval, order)
		if err != nil {
			return err
		}
		k.tellStarted(job, interval, s, after, dead)
		s = after
	}
	if job == CleanupJob {
		k.Metrics.CleanupPaused(s.Pause != nil)
	}
	if k.Saves != nil && unread == nil && s.ordered() > order.OrderedMs { // MySQL was down at the time of the order
		return controlplane.SavePause(ctx, k.Saves, job, s.order())
	}
	return nil
}

// newestOrder returns the newest order to pause or resume a job in MySQL.
func (k *Keeper) newestOrder(ctx context.Context, job string) (controlplane.PauseOrder, error) {
	if k.Saves == nil {
		return controlplane.PauseOrder{}, nil
	}
	return controlplane.LoadPause(ctx, k.Saves, job)
}

func (k *Keeper) tellStarted(job string, interval time.Duration, before, after State, dead bool) {
	switch {
	case before.Pause == nil && after.Pause != nil:
		k.Log.Warn("Restate had lost the pause of a job, and it is paused again", "job", job, "by", after.Pause.Actor,
			"reason", after.Pause.Reason)
	case after.Generation != before.Generation:
		k.Log.Info("schedule started", "job", job, "interval", interval.String(), "had_died", dead)
	default:
		return
	}
	if dead {
		k.Metrics.ChainRepaired()
	}
}

// tell logs and counts the result of a round.
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
