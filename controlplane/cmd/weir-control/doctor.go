package main

import (
	"context"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/restate/handlers"
)

// doctor returns the examiners for weirctl doctor. They are in the packages that they examine, except Redis, which the
// control plane does not use.
func (p *process) doctor(steps *store.Store, tables store.SchemaCheck, client *handlers.Client, admin *handlers.Admin,
	fleet func(context.Context) (fleet.Fleet, error)) func(context.Context) []watch.Check {
	restate := handlers.Examine{
		Client: client, Admin: admin,
		URI: p.handlersURL, Fingerprint: p.endpoint.Fingerprint(), Signed: p.config.RestateIdentityKey != "",
	}
	examiners := map[string]watch.Examiner{
		"control": watch.ExamineLiveWithin(steps.NewestTunings, p.config.NodeLiveWithin),
		"mysql":   steps.Examine(tables),
		"nodes":   watch.ExamineNodes(fleet),
		"redis":   examineRedis(p.config.RedisURL, p.config.RedisPasswordFile),
		"restate": restate.Checks,
	}
	return func(ctx context.Context) []watch.Check { return watch.Diagnose(ctx, examiners) }
}
