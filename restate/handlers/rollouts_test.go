package handlers

import (
	"testing"

	"github.com/weirhq/weir/controlplane"
)

// The lock is given back by the outcome, and not by word of an earlier one: a rollout
// that is done may be rolled back before the list has heard that it was done.
func TestTheLockIsGivenBackOnce(t *testing.T) {
	summary := func(id string, phase controlplane.RolloutPhase) controlplane.RolloutSummary {
		return controlplane.RolloutSummary{ID: id, Phase: phase}
	}
	l := rolloutList{Active: "two", List: []controlplane.RolloutSummary{summary("two", controlplane.RolloutMeasuring), summary("one", controlplane.RolloutDone)}}
	if l.end(summary("one", controlplane.RolloutDone)); l.Active != "two" {
		t.Error("another one's outcome gave the lock back")
	}
	l.note(summary("two", controlplane.RolloutRollingBack)) // taken back
	if l.end(summary("two", controlplane.RolloutDone)) || l.Active != "two" || l.List[0].Phase != controlplane.RolloutRollingBack {
		t.Errorf("an outcome of before gave the lock back: %+v", l)
	}
	if !l.end(summary("two", controlplane.RolloutRolledBack)) || l.Active != "" || l.List[0].Phase != controlplane.RolloutRolledBack {
		t.Errorf("the outcome did not give the lock back: %+v", l)
	}
}
