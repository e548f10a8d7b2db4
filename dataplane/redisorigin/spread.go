package redisorigin

import (
	"errors"
	"sync"

	"github.com/weirhq/weir/shared/window"
)

// inShards makes one call into a call to each shard that is concerned, all at the
// same time, and puts their results where the arguments were. With no arguments it is
// a call to the first, which knows what that means.
func inShards[T, R any](o *Origin, in []T, keyOf func(*T) *window.Key, call func(s *shard, in []T, out []R)) []R {
	out := make([]R, len(in))
	if len(o.shards) == 1 || len(in) == 0 {
		call(o.shards[0], in, out)
		return out
	}
	places := make([][]int, len(o.shards))
	for i := range in {
		n := o.ShardOf(keyOf(&in[i]))
		places[n] = append(places[n], i)
	}
	var calls sync.WaitGroup
	for n, s := range o.shards {
		switch len(places[n]) {
		case 0:
		case len(in):
			call(s, in, out)
		default:
			calls.Go(func() {
				partIn, partOut := make([]T, len(places[n])), make([]R, len(places[n]))
				for j, i := range places[n] {
					partIn[j] = in[i]
				}
				call(s, partIn, partOut)
				for j, i := range places[n] {
					out[i] = partOut[j]
				}
			})
		}
	}
	calls.Wait()
	return out
}

// failures are errors from several shards.
type failures struct {
	mu   sync.Mutex
	errs []error
}

func (f *failures) add(err error) {
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err)
	}
}

func (f *failures) join() error { return errors.Join(f.errs...) }
