package redisorigin

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
)

// A bucket that gives no answer has compared no mark, whether the call adds costs or only reads.
func TestEpochsOfBucketsWithoutAnAnswerAreListed(t *testing.T) {
	layout, err := newLayout(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := newShard(&Origin{layout: layout}, Partition{}, true)
	parts := []*sending{
		{part: &part{bucket: s.buckets[0], places: []int{0}}, after: store.Mark{Epoch: 5}, err: io.EOF},
		{part: &part{bucket: s.buckets[1]}, after: store.Mark{Epoch: 6, Ask: true}, err: io.EOF},
		{part: &part{bucket: s.buckets[2], places: []int{1}}, after: store.Mark{Epoch: 7}},
		{part: &part{bucket: s.buckets[3]}, err: io.EOF},
	}
	reply := store.Reply{Totals: make([]store.Total, 2)}
	err = s.failures(parts, &reply)
	if !errors.Is(err, io.EOF) || !errors.Is(reply.Totals[0].Err, io.EOF) || reply.Totals[1].Err != nil {
		t.Errorf("%+v, %v", reply.Totals, err)
	}
	if !slices.Equal(reply.Unanswered, []store.Epoch{5, 6}) {
		t.Errorf("%v have no answer", reply.Unanswered)
	}
}
