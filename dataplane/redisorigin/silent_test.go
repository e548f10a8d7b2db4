package redisorigin

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A sequence of a stream that a node has no costs for is asked in the middle of the time for which its chunks are kept,
// by whatever the node sends next: a replica that was promoted in between still gets them.
func TestAQuietSequenceIsAskedBeforeItsChunksAreForgotten(t *testing.T) {
	for name, test := range map[string]struct {
		costs int
		quiet time.Duration
		asked bool
	}{
		"too early":               {1, store.KeepFor/2 - time.Millisecond, false},
		"half of the time":        {1, store.KeepFor / 2, true},
		"a chunk without a cost":  {0, 0, true},
		"no longer than it keeps": {1, store.KeepFor - time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shard{origin: new(Origin)}
				chunk := &store.Chunk{Stream: 7}
				quiet := s.id(chunk, 3, 0)
				costs := []store.Cost{{Cell: window.Cell{Key: window.Key{Duration: time.Hour}}, Add: 1}}
				s.origin.streams.Answered(quiet, 1, 9, costs, time.Now())
				s.origin.streams.Answered(resend.ID{Stream: 8, Bucket: 3}, 1, 9, costs, time.Now())
				time.Sleep(test.quiet)
				ids := s.silent(chunk, test.costs)
				if asked := len(ids) == 1 && ids[0] == quiet; asked != test.asked || len(ids) > 1 {
					t.Errorf("asks %v, want the quiet sequence: %v", ids, test.asked)
				}
			})
		})
	}
}
