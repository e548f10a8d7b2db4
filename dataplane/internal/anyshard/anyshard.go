// Package anyshard makes calls that any shard of an origin can answer.
package anyshard

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/store"
)

// Last is the shard that answered last. The zero value begins with the first.
type Last struct{ shard atomic.Int32 }

// Call makes a call to the shard that answered last, and to the others one after another while it fails and ctx lives.
// The next Call tries a failed shard last, because it may have taken all of ctx's time. If none answers, Call prefers
// the error of a broken shard to store.ErrNoSettings.
func (l *Last) Call(ctx context.Context, shards int, call func(shard int) error) error {
	var failed error
	first := int(l.shard.Load()) % shards
	for i := range shards {
		shard := (first + i) % shards
		err := call(shard)
		if err == nil {
			l.shard.Store(int32(shard))
			return nil
		}
		l.shard.Store(int32((shard + 1) % shards))
		if failed == nil || errors.Is(failed, store.ErrNoSettings) {
			failed = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}
