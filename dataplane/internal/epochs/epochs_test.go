package epochs

import (
	"slices"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
)

// An answer that was overtaken by the news that its epoch is lost tells no epoch. A cost that was sent without an epoch
// is refused then, as the origin that has lost it would refuse it.
func TestAnOvertakenAnswerTellsNoEpoch(t *testing.T) {
	const lost, next store.Epoch = 7, 8
	var s Epochs
	before := s.Begin()
	if !s.End(lost, next) || s.End(lost, next) {
		t.Error("an epoch ends once")
	}
	costs := []store.Cost{{Add: 1}, {Add: 1, Epoch: lost}, {Add: 1, AtMost: 5}, {Add: 1}}
	answer := []store.Total{
		{Region: 9, Epoch: lost}, {Region: 9, Epoch: lost}, {Region: 9, Epoch: lost, Added: true}, {Region: 2, Epoch: next}}
	totals := slices.Clone(answer)
	s.Forget(before, totals, costs)
	want := []store.Total{{Epoch: next, Err: store.ErrEpoch}, {Region: 9}, {Region: 9, Added: true}, answer[3]}
	if !slices.Equal(totals, want) {
		t.Errorf("%+v, want %+v", totals, want)
	}
	totals = slices.Clone(answer[:1])
	if s.Forget(before, totals, nil); totals[0] != (store.Total{Region: 9}) {
		t.Errorf("an answer to a read became %+v", totals[0])
	}
	totals = slices.Clone(answer)
	if s.Forget(s.Begin(), totals, costs); !slices.Equal(totals, answer) {
		t.Errorf("the answer to a later call became %+v", totals)
	}
}
