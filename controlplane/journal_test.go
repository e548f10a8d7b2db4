package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// replayed is a journal with answers, as JSON, of an earlier attempt.
type replayed struct {
	Journal
	answers map[string]string
	names   []string // of steps, in their order
}

func (r *replayed) Do(name string, answer any, step func(context.Context) (any, error)) error {
	r.names = append(r.names, name)
	if text, ok := r.answers[name]; ok {
		return json.Unmarshal([]byte(text), answer)
	}
	return r.Journal.Do(name, answer, step)
}

func TestAStepThatHasAnAnswerIsNotExecutedAgain(t *testing.T) {
	j := &replayed{Journal: Once(t.Context()), answers: map[string]string{"now": "7", "look": `["a","b"]`}}
	look := func(context.Context) ([]string, error) { return nil, errors.New("executed") }
	names, err := Do(j, "look", look)
	if err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%v, %v", names, err)
	}
	if at, err := NowMs(j); err != nil || at != 7 {
		t.Errorf("it is %d, %v", at, err)
	}
	if _, err := Do(j, "another look", look); err == nil || err.Error() != "executed" {
		t.Errorf("a step without an answer: %v", err)
	}
	if names, err := Do(j, "no look", func(context.Context) ([]string, error) { return nil, nil }); err != nil || names != nil {
		t.Errorf("%v, %v", names, err)
	}
}

func TestAStepEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		steps := map[string]func(j Journal) error{
			"a step": func(j Journal) error {
				_, err := Do(j, "wait", Within(time.Minute, func(ctx context.Context) (bool, error) { return true, wait(ctx) }))
				return err
			},
			"a save": func(j Journal) error { return DoSave(j, 1, time.Minute, wait) },
		}
		for name, step := range steps {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			if err := step(Once(ctx)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
				t.Errorf("%s of a minute ends after %v: %v", name, time.Since(began), err)
			}
		}
	})
}

// A conflict is an answer: a journal does not try the step again, and a replay returns the same error.
func TestAConflictIsTheAnswerOfASave(t *testing.T) {
	j := &replayed{Journal: Once(t.Context()), answers: map[string]string{}}
	refused := fmt.Errorf("%w: it has moved on", ErrConflict)
	for range 2 {
		err := DoSave(j, 3, time.Minute, func(context.Context) error { return refused })
		if !errors.Is(err, ErrConflict) || err.Error() != refused.Error() {
			t.Errorf("error %v, want %v", err, refused)
		}
		j.answers["save 3"] = `"not now: it has moved on"`
	}
	away := errors.New("MySQL does not answer")
	if err := DoSave(j, 4, time.Minute, func(context.Context) error { return away }); !errors.Is(err, away) {
		t.Errorf("error %v", err)
	}
	if err := DoSave(j, 5, time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if want := []string{"save 3", "save 3", "save 4", "save 5"}; !slices.Equal(j.names, want) {
		t.Errorf("steps %q, want %q", j.names, want)
	}
}
