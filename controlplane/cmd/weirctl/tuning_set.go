package main

import (
	"errors"
	"strings"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// atOnceBake is the bake time of a tuning that is set immediately: the shortest that the API allows.
const atOnceBake = 100 * time.Millisecond

type tuningSet struct {
	tuningFlags
	Region []string `xor:"where" placeholder:"REGION" help:"Where to set it. Repeat it for several regions."`
	All    bool     `xor:"where" help:"Set it in all regions, including future regions."`
	AtOnce bool     `help:"Required: confirms that all nodes change at once, without stages and without a comparison."`
	ID     string   `name:"id" placeholder:"NAME" help:"Name of that rollout."`
	Force  bool     `help:"Set it even if the health of the fleet is critical: see weirctl health."`
	Watch  bool     `help:"Follow it until it is over."`
	by
}

// Run applies a tuning to regions immediately, after a confirmation. It is still a rollout: only one rollout runs at a
// time, nodes must report the tuning, it appears in the history, and weirctl rollout rollback reverts it.
func (s tuningSet) Run(c *call) error {
	plan, err := s.plan()
	if err != nil {
		return wrongTuning(err)
	}
	where := "all present and future regions"
	if !s.All {
		where = strings.Join(s.Region, ", ")
	}
	return rolloutStart{tuningFlags: s.tuningFlags, ID: s.ID, Force: s.Force, Watch: s.Watch, by: s.by,
		question: "all nodes of " + where + " get this tuning without stages and without a comparison"}.begin(c, plan)
}

func (s tuningSet) plan() (*controlv1.RolloutPlan, error) {
	switch {
	case !s.All && len(s.Region) == 0:
		return nil, errors.New("no region is named: set --region REGION or --all")
	case !s.AtOnce:
		return nil, errors.New("--at-once is missing: it confirms a change without stages and comparisons; weirctl " +
			"rollout start goes in stages")
	}
	bakeMs, baselineMs := atOnceBake.Milliseconds(), int64(0)
	return &controlv1.RolloutPlan{
		BaselineMs: &baselineMs,
		Stages:     []*controlv1.RolloutStage{{Regions: s.Region, All: s.All, BakeMs: &bakeMs}},
	}, nil
}
