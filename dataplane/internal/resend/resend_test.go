package resend

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var start = time.UnixMilli(1_700_000_000_000)

// costs are some of a window that is longer than each test.
func costs(n int) []store.Cost {
	costs, key := make([]store.Cost, n), window.Key{Duration: 24 * time.Hour}
	for i := range costs {
		costs[i].Cell = window.Cell{Key: key, Sequence: window.Sequence(start.UnixMilli(), key.Duration.Milliseconds())}
	}
	return costs
}

func numbers(chunks []Chunk) (numbers []int64) {
	for _, c := range chunks {
		numbers = append(numbers, c.Number)
	}
	return numbers
}

func TestAnsweredChunksAreKeptForAWhile(t *testing.T) {
	var s Streams
	id := ID{Stream: 7}
	for i := range int64(3) {
		s.Answered(id, i+1, 9, costs(1), start.Add(time.Duration(i)*2*time.Second))
	}
	if got := numbers(s.byID[id].kept); len(got) != 3 {
		t.Errorf("kept: %v", got)
	}
	s.Answered(id, 4, 9, nil, start.Add(store.KeepFor+2*time.Second)) // 1 and 2 are too old by now
	if got := numbers(s.byID[id].kept); len(got) != 1 || got[0] != 3 {
		t.Errorf("kept: %v", got)
	}
	if number, epoch := s.Last(id); number != 4 || epoch != 9 {
		t.Errorf("last is %d in %d", number, epoch)
	}
	if number, _ := s.Last(ID{Stream: 7, Part: 1}); number != 0 {
		t.Errorf("last of another part: %d", number)
	}
}

// A failover may follow another one: what was sent again is kept for as long again, from the answer that tells that it
// came.
func TestChunksSentAgainAreKeptAnew(t *testing.T) {
	var s Streams
	id := ID{Stream: 7}
	for i := range int64(3) {
		s.Answered(id, i+1, 9, costs(1), start)
	}
	if got := numbers(s.After(id, 1)); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("after 1: %v", got)
	}
	s.Answered(id, 4, 9, nil, start.Add(store.KeepFor))
	if got := numbers(s.After(id, 0)); len(got) != 2 || got[0] != 2 {
		t.Errorf("kept after a failover: %v, want 2 and 3", got)
	}
	s.Answered(id, 5, 9, nil, start.Add(2*store.KeepFor-1))
	s.Answered(id, 6, 9, nil, start.Add(3*store.KeepFor-2))
	if got := numbers(s.byID[id].kept); len(got) != 2 {
		t.Errorf("kept after the next one: %v, want 2 and 3", got)
	}
	s.Answered(id, 7, 9, nil, start.Add(3*store.KeepFor))
	if got := numbers(s.byID[id].kept); len(got) != 0 {
		t.Errorf("kept in the end: %v", got)
	}
}

// A repeated answer keeps nothing twice, and a new epoch begins with nothing.
func TestANewEpochKeepsNothingOfTheOld(t *testing.T) {
	var s Streams
	id := ID{Stream: 7}
	s.Answered(id, 1, 9, costs(2), start)
	s.Answered(id, 1, 9, costs(2), start)
	s.Answered(id, 2, 9, costs(2), start)
	if got := s.After(id, 0); len(got) != 2 || s.costs != 4 {
		t.Errorf("kept %v, %d costs", numbers(got), s.costs)
	}
	s.Answered(id, 2, 10, costs(3), start)
	if got := s.After(id, 0); len(got) != 1 || len(got[0].Costs) != 3 || s.costs != 3 {
		t.Errorf("kept %v, %d costs", numbers(got), s.costs)
	}
}

func TestAChunkKeepsTheEpochItWasFirstSentIn(t *testing.T) {
	var s Streams
	id := ID{Stream: 7}
	for _, step := range []struct {
		number               int64
		current, first, want store.Epoch
	}{{1, 0, 0, 0}, {1, 6, 5, 5}, {1, 7, 5, 5}, {2, 7, 5, 7}, {2, 8, 5, 7}} {
		if got := s.Stamp(id, step.number, step.current, step.first, start); got != step.want {
			t.Errorf("chunk %d in %d belongs to %d, want %d", step.number, step.current, got, step.want)
		}
	}
}

// Sequences that are not sent to any more are asked once what they keep is half as old as it gets.
func TestUntouchedSequences(t *testing.T) {
	var s Streams
	touched, quiet, other := ID{Stream: 7}, ID{Stream: 7, Bucket: 3}, ID{Stream: 8}
	for _, id := range []ID{touched, quiet, other, {Stream: 7, Shard: 1}} {
		s.Answered(id, 1, 9, costs(1), start)
	}
	s.Answered(touched, 2, 9, costs(1), start.Add(2*time.Second))
	if got := s.Untouched(7, 0, time.Second, start.Add(2*time.Second)); len(got) != 1 || got[0] != quiet {
		t.Errorf("untouched: %v", got)
	}
	s.Answered(quiet, 2, 9, nil, start.Add(store.KeepFor))
	if got := s.Untouched(7, 0, 0, start.Add(time.Minute)); len(got) != 1 || got[0] != touched {
		t.Errorf("untouched a minute later: %v", got)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var s Streams
	for i := range int64(10) {
		s.Answered(ID{Stream: 7}, i+1, 9, costs(CostsMax/4), start)
	}
	if s.costs > CostsMax {
		t.Errorf("%d costs are kept", s.costs)
	}
	for i := range uint64(10_000) { // an incarnation each second
		s.Answered(ID{Stream: i + 10}, 1, 9, costs(1), start.Add(time.Duration(i)*time.Second))
		if n := len(s.byID); n > 3*int(store.StreamKeptFor/time.Second) {
			t.Fatalf("%d streams are remembered", n)
		}
	}
	if most := int((unusedFor + sweepEvery) / time.Second); s.costs > most {
		t.Errorf("%d costs are kept of a stream each second, want those of %d", s.costs, most)
	}
}

// What is kept of a stream that its limiter uses no more, as one that was stopped, goes with the next use of another
// one.
func TestWhatIsKeptOfAnUnusedStreamExpires(t *testing.T) {
	var s Streams
	s.Answered(ID{Stream: 7}, 1, 9, costs(1), start)
	s.Answered(ID{Stream: 8}, 1, 9, costs(1), start)
	for at := time.Duration(0); at < unusedFor; at += time.Second { // the server of stream 7 does not answer
		s.Stamp(ID{Stream: 7}, 2, 9, 9, start.Add(at))
	}
	if s.costs != 2 {
		t.Errorf("%d costs are kept while they may be needed, want 2", s.costs)
	}
	s.Stamp(ID{Stream: 7}, 2, 9, 9, start.Add(unusedFor))
	if got := s.After(ID{Stream: 7}, 0); len(got) != 1 || s.costs != 1 {
		t.Errorf("after %v: chunks %v of the used stream, %d costs of both; want one of each", unusedFor, numbers(got), s.costs)
	}
}

// A process may be paused for just under a minute: when it goes on, chunks of all its sequences are there, for a
// replica that was promoted meanwhile.
func TestAPauseBelowAMinuteForgetsNoChunk(t *testing.T) {
	for pause, want := range map[time.Duration]int{59 * time.Second: 1, time.Minute: 0} {
		var s Streams
		first, second := ID{Stream: 7}, ID{Stream: 7, Bucket: 3}
		s.Answered(first, 1, 9, costs(1), start)
		s.Answered(second, 1, 9, costs(1), start)
		s.Stamp(first, 2, 9, 9, start.Add(pause))
		if got := s.After(second, 0); len(got) != want {
			t.Errorf("after a pause of %v %d chunks of the other sequence are kept, want %d", pause, len(got), want)
		}
	}
}

// Costs of windows that no decision depends on any more are not kept, however long the server does not answer.
func TestCostsOfPastWindowsAreNotKept(t *testing.T) {
	var s Streams
	id := ID{Stream: 7}
	short := store.Cost{Cell: window.Cell{Key: window.Key{Duration: time.Second}, Sequence: window.Sequence(start.UnixMilli(), 1000)}}
	s.Answered(id, 1, 9, []store.Cost{short}, start)
	s.Answered(id, 2, 9, append(costs(1), short), start)
	for at := time.Duration(0); at <= 2*sweepEvery; at += time.Second {
		s.Stamp(id, 3, 9, 9, start.Add(at))
	}
	if got := numbers(s.After(id, 0)); len(got) != 1 || got[0] != 2 || s.costs != 2 {
		t.Errorf("chunks %v are kept, %d costs; want the one with a long window", got, s.costs)
	}
}

// A stream that is in use stays, however many others there are.
func TestAStreamInUseOutlivesTheSweep(t *testing.T) {
	var s Streams
	id := ID{Stream: 7}
	s.Answered(id, 3, 9, costs(1), start)
	for i := range uint64(4 * sweepMin) {
		s.Answered(ID{Stream: i + 10}, 1, 9, costs(1), start)
	}
	if number, epoch := s.Last(id); number != 3 || epoch != 9 || len(s.After(id, 2)) != 1 {
		t.Errorf("last answered is %d in %d, and %d chunks are kept; want 3 in 9, and 1", number, epoch, len(s.After(id, 2)))
	}
}
