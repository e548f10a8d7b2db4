package anyshard_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/weirhq/weir/dataplane/internal/anyshard"
	"github.com/weirhq/weir/dataplane/store"
)

func TestTheShardThatAnsweredLastIsAskedFirst(t *testing.T) {
	errDown := errors.New("down")
	var last anyshard.Last
	for i, step := range []struct {
		answers []error // by shard
		asked   []int
		want    error
	}{
		{[]error{nil, nil, nil}, []int{0}, nil},
		{[]error{errDown, nil, nil}, []int{0, 1}, nil},
		{[]error{nil, nil, nil}, []int{1}, nil},
		{[]error{nil, errDown, store.ErrNoSettings}, []int{1, 2, 0}, nil},
		{[]error{store.ErrNoSettings, errDown, store.ErrNoSettings}, []int{0, 1, 2}, errDown},
		{[]error{store.ErrNoSettings, store.ErrNoSettings, store.ErrNoSettings}, []int{0, 1, 2}, store.ErrNoSettings},
	} {
		var asked []int
		err := last.Call(t.Context(), 3, func(shard int) error {
			asked = append(asked, shard)
			return step.answers[shard]
		})
		if !errors.Is(err, step.want) || !slices.Equal(asked, step.asked) {
			t.Errorf("step %d: asked %v, %v, want %v, %v", i, asked, err, step.asked, step.want)
		}
	}
}

// "The next Call tries a failed shard last, because it may have taken all of ctx's time."
func TestAShardThatHangsIsAskedOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var last anyshard.Last
	var asked []int
	hang := func(shard int) error {
		asked = append(asked, shard)
		if shard == 0 {
			cancel()
			return ctx.Err()
		}
		return nil
	}
	if err := last.Call(ctx, 2, hang); !errors.Is(err, context.Canceled) {
		t.Errorf("with a shard that hangs: %v", err)
	}
	if err := last.Call(t.Context(), 2, hang); err != nil || !slices.Equal(asked, []int{0, 1}) {
		t.Errorf("asked %v, %v", asked, err)
	}
}
