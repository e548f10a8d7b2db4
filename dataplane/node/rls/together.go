package rls

import (
	"context"
	"sync"
	"sync/atomic"
)

const (
	manyItems   = 8  // number of items from which they run concurrently
	togetherMax = 32 // concurrent items
)

// lookAt peeks at some of a call's items.
func (s *Service) lookAt(ctx context.Context, items []item, which func(*item) bool) {
	if !some(items, which) {
		return
	}
	together(items, func(it *item) {
		if which(it) {
			it.look(s.Limiter.Peek(ctx, it.request))
		}
	})
}

func some(items []item, which func(*item) bool) bool {
	for i := range items {
		if which(&items[i]) {
			return true
		}
	}
	return false
}

// together calls do for all items of a call. Each item can wait for the origin. If the origin is slow, a thousand items
// in sequence would occupy the call's slot for a minute. do must change only its own item.
func together(items []item, do func(*item)) {
	if len(items) < manyItems {
		for i := range items {
			do(&items[i])
		}
		return
	}
	var working sync.WaitGroup
	var thrown atomic.Value
	for first := range min(togetherMax, len(items)) {
		working.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					thrown.Store(panicked{p})
				}
			}()
			for i := first; i < len(items); i += togetherMax {
				do(&items[i])
			}
		})
	}
	working.Wait()
	if p, ok := thrown.Load().(panicked); ok {
		panic(p.value) // so that the server recovers it
	}
}

type panicked struct{ value any }
