package controlplane

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Journal executes the steps of durable work, such as a run of the cleanup or one transition of a rollout. A durable
// journal stores the answer of each step under the step's name. If the work is interrupted, it is run again from its
// beginning with the same journal, and steps that have an answer are not executed again. So the work must take the same
// steps, in the same order, whenever they return the same answers.
//
// A step may be executed more than once, because its answer may be lost. An implementation need not be safe for
// concurrent use. Call [Do] instead of the method.
type Journal interface {
	// Do executes step, unless the journal has its answer, and stores the answer in the variable that answer points to.
	// The step must use its own context and no other. If it fails, the journal may try it again. An error of Do is final.
	Do(name string, answer any, step func(context.Context) (any, error)) error
}

// Do executes a step, or returns the answer that the journal has of it. The answer must survive encoding as JSON.
//
//	now, err := controlplane.Do(j, "now", func(context.Context) (int64, error) { return time.Now().UnixMilli(), nil })
func Do[T any](j Journal, name string, step func(context.Context) (T, error)) (answer T, err error) {
	err = j.Do(name, &answer, func(ctx context.Context) (any, error) { return step(ctx) })
	return answer, err
}

// Within returns a step that has at most d to execute.
func Within[T any](d time.Duration, step func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return step(ctx)
	}
}

// StepNow is the name of the step of [NowMs].
const StepNow = "now"

// NowMs returns the time by the clock of this process, in Unix ms, as a step.
func NowMs(j Journal) (int64, error) {
	return Do(j, StepNow, func(context.Context) (int64, error) { return time.Now().UnixMilli(), nil })
}

// DoSave saves a state for the number-th time, as a step of at most d. If save returns an error that wraps ErrConflict,
// the step is not tried again, and DoSave returns such an error.
func DoSave(j Journal, number int64, d time.Duration, save func(context.Context) error) error {
	conflict, err := Do(j, fmt.Sprintf("save %d", number), Within(d, func(ctx context.Context) (string, error) {
		err := save(ctx)
		if errors.Is(err, ErrConflict) {
			return err.Error(), nil
		}
		return "", err
	}))
	if err == nil && conflict != "" {
		err = fmt.Errorf("%w: %s", ErrConflict, strings.TrimPrefix(conflict, ErrConflict.Error()+": "))
	}
	return err
}

// Once returns a journal that executes each step once and stores no answers. Use it where nothing must survive a crash,
// for example in tests.
func Once(ctx context.Context) Journal { return once{ctx} }

type once struct{ ctx context.Context }

func (o once) Do(_ string, answer any, step func(context.Context) (any, error)) error {
	value, err := step(o.ctx)
	if err == nil {
		reflect.ValueOf(answer).Elem().Set(reflect.ValueOf(value))
	}
	return err
}
