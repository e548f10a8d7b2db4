package epochs

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// If an answer arrives after its epoch was found to be lost, it reveals no epoch. A cost that was sent without an epoch
// is then refused, as the origin that has lost it would refuse it.
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

// The epoch that followed may be lost by then, too. The refusal has the latest epoch, because otherwise it would begin
// the lost epoch again.
func TestARefusalHasAnEpochThatIsNotLost(t *testing.T) {
	var s Epochs
	before := s.Begin()
	s.End(7, 8)
	s.End(8, 9)
	s.End(9, 10)
	totals := []store.Total{{Region: 9, Epoch: 7}}
	if s.Forget(before, totals, []store.Cost{{Add: 1}}); totals[0] != (store.Total{Epoch: 10, Err: store.ErrEpoch}) {
		t.Errorf("%+v, want a refusal in epoch 10", totals[0])
	}
}

// A lost epoch that an answer to a later call has is back: it may be lost once more.
func TestAnEpochThatIsBackMayBeLostAgain(t *testing.T) {
	var s Epochs
	s.End(7, 8)
	s.Forget(s.Begin(), []store.Total{{Epoch: 7}}, nil)
	if !s.End(7, 9) {
		t.Error("the epoch that is back is taken for lost")
	}
}

// Each second 32 silent epochs are probed. Once one of them is lost, all others are probed at once.
func TestSilentEpochsAreAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Epochs
		c := window.Cell{Key: window.Key{Duration: time.Hour}, Sequence: 1}
		for epoch := range store.Epoch(100) {
			s.CountedIn([]store.Total{{Epoch: 1 + epoch}}, func(int) *window.Cell { return &c })
		}
		want := func(what string, n int) (asked []store.Epoch) {
			t.Helper()
			if asked, _ = s.Silent(time.Now(), 0); len(asked) != n {
				t.Errorf("%s: %d epochs are asked about, want %d", what, len(asked), n)
			}
			return asked
		}
		want("after their answers", 0)
		time.Sleep(silentFor)
		want("a second later", probesMax)
		time.Sleep(silentFor - 1)
		want("soon after", 0)
		s.End(1, 200)
		if asked := want("after a loss", 99); slices.Contains(asked, 1) {
			t.Error("the lost epoch is asked about")
		}
		want("at once again", 0)
		time.Sleep(silentFor)
		s.Answered([]store.Total{{Epoch: 2}})
		want("a second later again", probesMax)
		if _, cells := s.Silent(time.Now().Add(silentFor), c.ExpiresAtMs()); len(cells) != 0 || len(s.counted) != 0 {
			t.Errorf("%d epochs whose cells are over are asked about, and %d are known", len(cells), len(s.counted))
		}
	})
}
