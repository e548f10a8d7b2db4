package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/tunings"
)

// fail begins a rollback because of a problem in a stage.
func (r *Rollout) fail(stage int, why string) time.Duration {
	text := fmt.Sprintf("stage %d (%s): %s", stage+1, r.Stages[stage], why)
	return r.turn(RolledBack, controlplane.Itself, controlplane.Shorten(text, 2*controlplane.ReasonBytesMax))
}

func (r *Rollout) turn(wanted Phase, actor, why string) time.Duration {
	r.Phase, r.Wanted, r.Why = RollingBack, wanted, why
	r.Paused, r.Watch, r.DueMs, r.SinceMs, r.Waiting, r.EndedMs = nil, nil, 0, 0, "", 0
	r.Bake, r.Reverted = Bake{}, false
	r.Effect.End()
	r.Compared, r.TrialsEnded, r.LeasesMs, r.Unknown = guard.Compared{}, false, 0, ""
	r.AddEvent(r.MovedMs, actor, "roll back", why)
	return 0
}

// rollBack ends the trials. Where versions may have been stored, it then gives each region its previous tuning back,
// one region per transition, the last region first. When all regions have it, it waits until every live node has sent a
// heartbeat, and no node reports the tuning that was withdrawn.
func (r *transition) rollBack() (time.Duration, error) {
	if !r.begun() {
		return r.end(r.Wanted, controlplane.Itself), nil
	}
	if !r.TrialsEnded {
		return 0, r.endTrials()
	}
	if r.Keeps && r.Spec.Limits != nil && !r.Reverted {
		return 0, r.revertLimits()
	}
	for i := len(r.Touched) - 1; i >= 0 && r.Spec.Limits == nil; i-- {
		if t := &r.Touched[i]; r.Keeps && !t.settled() {
			return 0, r.revert(t)
		}
	}
	if r.LeasesMs == 0 { // every renewal came before the trials were ended
		r.LeasesMs = r.nowMs + r.Spec.Plan.LeaseMs
	}
	var err error
	if r.look, err = r.steps.look(r.Trials().scope()); err != nil {
		return 0, err
	}
	r.Clocks.See(r.look, r.nowMs)
	if r.held() {
		return r.Spec.Plan.PollEvery(), nil
	}
	return r.withdraw(), nil
}

// revert writes the previous tuning of a region, if the newest version is the rollout's own. If another version has
// been written since, that version stays.
//
// If it is not certain whether the rollout's own version was written, an attempt to write it may still arrive. So
// revert makes that write too, and replaces it in the same transaction. An attempt that arrives later finds its write
// made, and changes nothing.
func (r *transition) revert(t *Touched) error {
	writes := []tunings.Write{{
		ID: r.ID + "/revert/" + t.Region, Region: t.Region, Document: t.Previous, Over: t.Applied,
		By: controlplane.By{Actor: r.By.Actor, Reason: controlplane.Shorten(fmt.Sprintf("rollout %s rolled back: %s", r.ID,
			r.Why), controlplane.ReasonBytesMax)},
	}}
	if t.Applied == 0 {
		writes = append([]tunings.Write{r.applyWrite(*t)}, writes...)
	}
	written, err := r.steps.write(writes)
	if err != nil {
		return err
	}
	if refused := written.Refused; refused != nil {
		t.Newer, t.Gone = refused.Newest, refused.Newest == 0
		r.AddEvent(r.nowMs, controlplane.Itself, "leave", "not rolled back: "+refused.Over(writes[0].Over))
		return nil
	}
	t.Reverted = written.Versions[len(written.Versions)-1]
	if t.Applied == 0 {
		t.Applied = written.Versions[0]
	}
	return nil
}

// withdraw ends a rollback once each live node has sent a heartbeat after the last write, and none reports a trial or a
// version that was withdrawn. Older heartbeats do not count, because a node may have taken up the tuning after them. If
// that takes longer than apply_timeout_ms, the rollout reports it as trouble until the nodes follow, are stopped, or an
// operator aborts the rollout.
func (r *transition) withdraw() time.Duration {
	r.since()
	lag, silent := r.laggards(), r.silentNodes()
	if r.DueMs == 0 && (lag != "" || silent != "") {
		r.DueMs = r.nowMs + r.Spec.Plan.ApplyTimeoutMs
	}
	switch {
	case lag != "":
		r.Waiting = lag
		if r.nowMs >= r.DueMs {
			r.Trouble = "the rollback has not reached all nodes in time: " + lag
			return r.Spec.Plan.TroubleEvery()
		}
		return r.Spec.Plan.PollEvery()
	case silent == "":
	case r.nowMs < r.LeasesMs:
		r.Waiting = fmt.Sprintf("%s, and may run the tuning until their leases end in %s", silent,
			controlplane.Seconds(time.Duration(r.LeasesMs-r.nowMs)*time.Millisecond))
		return r.Spec.Plan.PollEvery()
	case r.Keeps: // they have stored the version, which has no lease
		r.noteUnknown(silent)
	}
	return r.end(r.Wanted, controlplane.Itself)
}

// silentNodes names the nodes that may run the rollout's tuning and have sent no heartbeat for too long; empty: there
// is none. Nodes that were silent before the rollout began never had it.
func (r *transition) silentNodes() string {
	var names []string
	for _, n := range r.look.Unheard {
		t, touched := r.ran(n.Region)
		if touched && (r.Keeps || t.expects(n.ID)) && n.SeenMs+r.look.LiveMs >= r.StartedMs {
			names = append(names, n.ID+" in "+n.Region)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return controlplane.CountOf(len(names), "node is silent: ", "nodes are silent: ") + controlplane.Several(names)
}

// laggards names the live nodes that report a withdrawn trial or version, or have sent no heartbeat since it was
// withdrawn; empty: there is none.
func (r *transition) laggards() string {
	trials, versions, hash := map[int64]bool{}, map[int64]bool{}, tunings.HashOf(r.Document)
	for _, t := range slices.Concat(r.Touched, r.Shadows) {
		trials[t.Trial] = trials[t.Trial] || t.Trial > 0
		versions[t.Applied] = versions[t.Applied] || t.Applied > 0
	}
	var names, unheard []string
	live := 0
	for _, n := range r.look.Nodes {
		t, touched := r.ran(n.Region)
		mayRun := touched && (r.Keeps || t.expects(n.ID))
		if mayRun {
			live++
		}
		switch {
		case trials[n.Trial] || n.Trial == 0 && versions[n.Version],
			mayRun && n.Trial != 0 && (hash == "" || n.Hash == hash): // a restored MySQL may have given its trial another number
			names = append(names, fmt.Sprintf("%s in %s runs %s", n.ID, n.Region, n.Runs())+n.ProblemSuffix())
		case mayRun && n.SeenMs <= r.SinceMs:
			unheard = append(unheard, n.ID+" in "+n.Region)
		}
	}
	switch {
	case len(names) > 0:
		return fmt.Sprintf("%d of %s the withdrawn %s: %s", len(names), controlplane.CountOf(max(live, len(names)),
			"live node still runs", "live nodes still run"), r.noun(), controlplane.Several(names))
	case len(unheard) > 0:
		return fmt.Sprintf("%d of %s sent no heartbeat since the %s withdrawn: %s", len(unheard),
			controlplane.CountOf(live, "live node has", "live nodes have"), map[string]string{"tuning": "tuning was",
				"limits": "limits were"}[r.noun()], controlplane.Several(unheard))
	}
	return ""
}

func (r *transition) applyWrite(t Touched) tunings.Write {
	return tunings.Write{
		ID: r.ID + "/apply/" + t.Region, Region: t.Region, Document: r.Document, Over: t.Over, By: r.writtenBy(),
	}
}

// writtenBy returns the author of the rollout's writes.
func (r *transition) writtenBy() controlplane.By {
	return controlplane.By{Actor: r.By.Actor, Reason: controlplane.Shorten(fmt.Sprintf("rollout %s: %s", r.ID,
		r.By.Reason), controlplane.ReasonBytesMax)}
}

func (r *Rollout) end(outcome Phase, actor string) time.Duration {
	r.Phase, r.EndedMs, r.DueMs, r.Waiting, r.Watch, r.Compared = outcome, r.MovedMs, 0, "", nil, guard.Compared{}
	r.Effect.End()
	r.AddEvent(r.MovedMs, actor, string(outcome), strings.Trim(r.Why+"; "+r.Unknown, "; "))
	return -1
}

// Overtaken refuses to roll back if a region has a newer version that the rollout did not write. inForce is the result
// of Steps.inForce for the rollout's rows.
func (r *Rollout) Overtaken(inForce []tunings.RegionTuning) error {
	for i, t := range r.Touched {
		if i < len(inForce) && inForce[i].Version != t.Applied {
			return fmt.Errorf("%w: rollout %s wrote version %d of %s, which has version %d since: first roll back its rollout, "+
				"or start a rollout of the tuning you want",
				controlplane.ErrConflict, r.ID, t.Applied, controlplane.RowName(t.Region), inForce[i].Version)
		}
	}
	return nil
}
