package held_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// thereOf are reservations at an origin, as a node has them that calls its shards, but not those that are away.
func thereOf(origin *memstore.Origin, away ...int) *held.There {
	return &held.There{
		Origin: origin,
		NowMs:  func() int64 { return time.Now().UnixMilli() },
		Heard:  func(int, []store.Hold, []store.Total) {},
		Call: func(ctx context.Context, shard int, _ held.What, _ int, call func(context.Context) (store.Reply, error)) error {
			if slices.Contains(away, shard) {
				return errors.New("away")
			}
			_, err := call(ctx)
			return err
		},
	}
}

func record(key string) *held.Record {
	now := time.Now()
	return &held.Record{Returned: true, MadeMs: now.UnixMilli(), EndsMs: now.Add(time.Minute).UnixMilli(), MadeBy: 1,
		Items: []held.Item{{Workspace: "w", Namespace: "n", Identifier: key, DurationMs: 3_600_000_000, Limit: 1000, Held: 100,
			Sequence: now.UnixMilli() / 3_600_000_000}}}
}

func reserve(t *testing.T, s *held.There, id, key string) {
	t.Helper()
	all := func([]store.HoldAnswer, bool) (bool, error) { return true, nil }
	if _, ok, err := s.Reserve(t.Context(), id, record(key), all); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func look(r *held.Record, _ int64) (*held.Record, error) { return nil, nil }

func spend(cost int64, last bool) held.Change {
	return func(r *held.Record, _ int64) (*held.Record, error) { return r.Spend([]int64{cost}, last), nil }
}

func extend(r *held.Record, _ int64) (*held.Record, error) {
	next := *r
	next.EndsMs += 60_000
	return &next, nil
}

// A shard that is away keeps nothing from the others that have lost what they held.
func TestAShardThatIsAwayHoldsUpNoOther(t *testing.T) {
	const n = 200
	origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
	s := thereOf(origin)
	for i := range n {
		reserve(t, s, fmt.Sprint(i), keyOf(origin, i))
	}
	origin.Wipe()
	s.Lose()
	call := s.Call
	s.Call = thereOf(origin, 1).Call
	if err := s.Send(t.Context()); err == nil {
		t.Error("a shard was away, and all was told")
	}
	s.Call = call
	for i := range n {
		id := fmt.Sprint(i)
		note := store.NoteKey(id)
		if origin.ShardOf(&note) == 1 {
			continue
		}
		if _, late, err := s.Change(t.Context(), id, look); late || err != nil {
			t.Fatalf("%s was not told: %v, late %v", id, err, late)
		}
	}
	if err := s.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, late, err := s.Change(t.Context(), fmt.Sprint(i), look); late || err != nil {
			t.Fatalf("%d was not told in the next turn: %v, late %v", i, err, late)
		}
	}
}

// keyOf names a key in the shard of the note of a reservation.
func keyOf(origin *memstore.Origin, i int) string {
	note := store.NoteKey(fmt.Sprint(i))
	for n := 0; ; n++ {
		key := fmt.Sprint("k", i, "-", n)
		if cell := record(key).Items[0].Cell(); origin.ShardOf(&cell.Key) == origin.ShardOf(&note) {
			return key
		}
	}
}

// An emptied origin is told of an older version first, and that is changed before the node tells that knows more: what
// was said to be spent, and the end, hold all the same.
func TestWhatWasSaidOutlivesAnOlderVersion(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("settled ", settled), func(t *testing.T) {
			ctx := t.Context()
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			a, b := thereOf(origin), thereOf(origin)
			reserve(t, a, "one", "k")
			if _, late, err := b.Change(ctx, "one", spend(30, settled)); late || err != nil {
				t.Fatal(late, err)
			}
			origin.Wipe()
			a.Lose()
			if err := a.Send(ctx); err != nil {
				t.Fatal(err)
			}
			if _, late, err := a.Change(ctx, "one", extend); late || err != nil {
				t.Fatal(late, err)
			}
			b.Lose()
			if err := b.Send(ctx); err != nil {
				t.Fatal(err)
			}
			r, _, err := a.Change(ctx, "one", look)
			if err != nil || r.Items[0].Spent != 30 || r.Settled != settled {
				t.Errorf("%+v, %v; want 30 spent, settled %v", r, err, settled)
			}
		})
	}
}
