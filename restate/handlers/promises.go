package handlers

import (
	"context"
	"log/slog"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
)

// PromisesService is the service's name in Restate.
const PromisesService = "WeirPromises"

// promiseTimeout is more than a simulation takes that waits for one that is under way.
const promiseTimeout = 2*controlplane.PreviewTimeMax + 10*time.Second

// promises hold previews to what was measured of a rollout that is done. A service of its own: the rollout is free for
// operators while the fleet is simulated.
type promises struct {
	previews *controlplane.Preview // nil: see Options
	steps    *stepper
	log      *slog.Logger
}

func (p *promises) definition() restate.ServiceDefinition {
	return restate.NewService(PromisesService,
		restate.WithDocumentation("Compares previews with what rollouts measured. Only Weir's other handlers call it."),
		restate.WithIngressPrivate(true),
		restate.WithJournalRetention(24*time.Hour),
		restate.WithIdempotencyRetention(orderRetention),
		restate.WithInactivityTimeout(2*promiseTimeout),
		// Then it is given up: a rollout less to judge previews by.
		restate.WithInvocationRetryPolicy(
			restate.WithInitialRetryInterval(time.Second),
			restate.WithRetryIntervalFactor(2),
			restate.WithMaxRetryInterval(time.Minute),
			restate.WithMaxRetryAttempts(20),
			restate.KillOnMaxAttempts(),
		)).
		Handler("Keep", restate.NewServiceHandler(p.keep))
}

func (p *promises) keep(ctx restate.Context, ask controlplane.PromiseAsk) (restate.Void, error) {
	if p.previews == nil {
		return restate.Void{}, nil
	}
	err := restate.RunVoid(ctx, func(rc restate.RunContext) error {
		if p.steps.draining.Load() {
			return errDraining
		}
		timed, cancel := context.WithTimeout(rc, promiseTimeout)
		defer cancel()
		err := p.previews.KeepPromise(timed, ask)
		if err != nil {
			p.log.Warn("a preview is not yet compared with what its rollout measured", "rollout", ask.Rollout, "error", err)
		}
		return err
	}, restate.WithName("simulate"))
	return restate.Void{}, err
}
