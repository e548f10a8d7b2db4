package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// away are rollouts of a Restate that does not answer.
type away struct{ rollouts }

func (*away) Status(context.Context, string) (rollout.Rollout, error) {
	return rollout.Rollout{}, fmt.Errorf("%w: Restate does not answer", controlplane.ErrUnavailable)
}

func (*away) UnderWay(context.Context) (*rollout.Rollout, error) {
	return nil, fmt.Errorf("%w: Restate does not answer", controlplane.ErrUnavailable)
}

// saves are states by id, and err for all calls.
type saves struct {
	states map[string]string
	list   []rollout.Summary
	err    error
}

func (s saves) Newer(_ context.Context, id string, _ int64) (string, error) {
	return s.states[id], s.err
}

// hanging is a MySQL that does not answer at all.
type hanging struct{ saves }

func (hanging) List(ctx context.Context) ([]rollout.Summary, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s saves) List(context.Context) ([]rollout.Summary, error) {
	return s.list, s.err
}

// While Restate does not answer, a status is the saved rollout from MySQL, with a note about that.
func TestAStatusIsTheSavedOneWhileRestateIsDown(t *testing.T) {
	ctx := t.Context()
	state, err := json.Marshal(&rollout.Rollout{ID: "r1", Phase: rollout.Baking, Stage: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := SavedRollouts{&away{}, saves{
		states: map[string]string{"r1": string(state), "odd": "{", "newer": `{"version":99}`},
		list:   []rollout.Summary{{ID: "r1", StartedMs: 2, Phase: rollout.Baking}, {ID: "old", StartedMs: 1, Phase: rollout.Done}},
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
	if err != nil || len(list) != 2 || list[0].ID != "r1" || list[1].ID != "old" {
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
}

// While MySQL does not answer, the list has the rollout that is under way, so that an operator can stop it.
func TestTheListWithoutMySQL(t *testing.T) {
	down := errors.New("MySQL does not answer")
	live := &rollouts{one: &rollout.Rollout{ID: "r1", Phase: rollout.Baking}}
	s := SavedRollouts{live, saves{err: down}}
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != "r1" || list[0].Phase != rollout.Baking {
		t.Errorf("%+v, %v", list, err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lookTimeout)
		defer cancel()
		s := SavedRollouts{live, hanging{}}
		if list, err := s.List(ctx); err != nil || len(list) != 1 || ctx.Err() != nil {
			t.Errorf("MySQL hangs: %+v, %v", list, err)
		}
	})
	live.one = nil
	if list, err := s.List(t.Context()); !errors.Is(err, down) {
		t.Errorf("none is under way: %+v, %v", list, err)
	}
}
