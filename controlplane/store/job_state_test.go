package store

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/servers"
)

// Of all saved states of a name, the state with the highest number stays, in any order and with any repetition.
func TestTheNewestJobStateStays(t *testing.T) { servers.EachSQL(t, testTheNewestJobStateStays) }

func testTheNewestJobStateStays(t *testing.T) {
	s, _ := migrated(t)
	if none, err := s.JobState(t.Context(), "none"); err != nil || none.Saved != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		name := fmt.Sprintf("job %d", runs)
		var newest controlplane.JobState
		for i, saved := range rapid.SliceOfN(rapid.Int64Range(1, 5), 1, 5).Draw(rt, "numbers") {
			state := controlplane.JobState{Name: name, Saved: saved, State: fmt.Sprintf(`{"order":%d}`, i)}
			if saved > newest.Saved { // the first state with a number stays
				newest = state
			}
			if kept, err := s.SaveJobState(t.Context(), state); err != nil || kept != newest {
				rt.Fatalf("kept %+v, %v; want %+v", kept, err, newest)
			}
		}
		if got, err := s.JobState(t.Context(), name); err != nil || got != newest {
			rt.Fatalf("%+v, %v; want %+v", got, err, newest)
		}
	})
}

// Processes that save at once do not block each other permanently, and the highest number stays.
func TestJobStatesSavedAtOnce(t *testing.T) { servers.EachSQL(t, testJobStatesSavedAtOnce) }

func testJobStatesSavedAtOnce(t *testing.T) {
	s, _ := migrated(t)
	var saving sync.WaitGroup
	for i := range 8 {
		saving.Go(func() {
			if _, err := s.SaveJobState(t.Context(), controlplane.JobState{Name: "job", Saved: int64(i + 1), State: "{}"}); err != nil {
				t.Error(err)
			}
		})
	}
	saving.Wait()
	if got, err := s.JobState(t.Context(), "job"); err != nil || got.Saved != 8 {
		t.Errorf("%+v, %v", got, err)
	}
}
