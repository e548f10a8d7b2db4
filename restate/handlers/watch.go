package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/watch"
)

// WatchJob is the watch's key in CronService.
const WatchJob = "watch"

// watchJob returns the watch as a job: a look, and the change that it makes to the document. The look is a single step,
// because it changes nothing; its result is bounded, and never an error.
func watchJob(watching *watch.Watch, steps *stepper) Job {
	return Job{Run: func(ctx restate.ObjectContext) (Report, error) {
		look, err := controlplane.Do(steps.on(ctx), "look", func(ctx context.Context) (watch.Look, error) {
			return watching.Look(ctx, time.Now()), nil
		})
		if err != nil {
			return Report{}, err
		}
		before, terminal := restate.Get[watch.HealthDocument](ctx, documentKey)
		if terminal != nil {
			return Report{}, terminal
		}
		if err := before.Check(); err != nil {
			return Report{}, failed(err)
		}
		after := before.Next(look)
		restate.Set(ctx, documentKey, after)
		return Report{Readings: map[string]int64{"findings": int64(len(after.Findings))}, Note: string(after.Overall)}, nil
	}}
}

// Health returns the watch's newest document, or the zero document if there is none.
func (c *Client) Health(ctx context.Context) (d watch.HealthDocument, err error) {
	text, err := request[restate.Void, json.RawMessage](ctx, c, WatchJob, "Document", restate.Void{})
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read the health document: %w", err)
	}
	return d, d.Check()
}
