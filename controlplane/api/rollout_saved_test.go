package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// away are rollouts of a Restate that does not answer.
type away struct{ rollouts }

func (*away) Status(context.Context, string) (rollout.Rollout, error) {
	return rollout.Rollout{}, fmt.Errorf("%w: Restate does not answer", controlplane.ErrUnavailable)
}

func (*away) List(context.Context) ([]rollout.Summary, error) {
	return nil, fmt.Errorf("%w: Restate does not answer", controlplane.ErrUnavailable)
}

// saves are states by id, and err for all calls.
type saves struct {
	states map[string]string
	traces []rollout.Trace
	err    error
}

func (s saves) Newer(_ context.Context, id string, _ int64) (string, error) {
	return s.states[id], s.err
}

func (s saves) Traces(context.Context, int) ([]rollout.Trace, error) {
	return s.traces, s.err
}

// While Restate does not answer, a status is the rollout as MySQL has it, and says that it is.
func TestAStatusIsTheSavedOneWhileRestateIsDown(t *testing.T) {
	ctx := t.Context()
	state, err := json.Marshal(&rollout.Rollout{ID: "r1", Phase: rollout.Baking, Stage: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := SavedRollouts{&away{}, saves{
		states: map[string]string{"r1": string(state), "odd": "{", "newer": `{"version":99}`},
		traces: []rollout.Trace{
			{ID: "old", StartedMs: 1, Saved: 3, Phase: rollout.Done},
			{ID: "r1", StartedMs: 2, Saved: 1, Phase: rollout.Baking},
			{ID: "without a state", StartedMs: 3},
		},
	}}
	r, err := s.Status(ctx, "r1")
	if err != nil || r.ID != "r1" || r.Phase != rollout.Baking || r.Waiting != asSaved {
		t.Errorf("%+v, %v", r, err)
	}
	for _, id := range []string{"unknown", "odd", "newer"} {
		if _, err := s.Status(ctx, id); !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("%s: %v, want that Restate does not answer", id, err)
		}
	}
	list, err := s.List(ctx)
	if err != nil || len(list) != 2 || list[0].ID != "r1" || list[0].Why != asSaved || list[1].ID != "old" || list[1].Why != "" {
		t.Errorf("%+v, %v", list, err)
	}

	s.Saves = saves{err: errors.New("MySQL does not answer either")}
	if _, err := s.Status(ctx, "r1"); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("without MySQL: %v", err)
	}
	if _, err := s.List(ctx); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("without MySQL: %v", err)
	}
}

// Restate's own answer is never replaced, nor is its answer that there is no such rollout.
func TestRestatesAnswerIsNotReplaced(t *testing.T) {
	ctx := t.Context()
	live := &rollouts{one: &rollout.Rollout{ID: "r1", Phase: rollout.Awaiting}}
	s := SavedRollouts{live, saves{states: map[string]string{"r1": `{"id":"r1","phase":"baking"}`, "gone": `{"id":"gone"}`}}}
	if r, err := s.Status(ctx, "r1"); err != nil || r.Phase != rollout.Awaiting || r.Waiting == asSaved {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.Status(ctx, "gone"); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("%v, want not found", err)
	}
	if list, err := s.List(ctx); err != nil || len(list) != 1 || list[0].Why != "" {
		t.Errorf("%+v, %v", list, err)
	}
}
