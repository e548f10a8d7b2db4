package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// keysStore is a KeysStore in memory, with a single namespace.
type keysStore struct {
	keyStore
	rows    []KeyRowOf // sorted
	resets  []Reset
	reports []TopReport
	err     error // of TopReports
	read    int   // rows
	looked  int   // calls that look for overrides and resets
}

func (s *keysStore) KeyRowsOf(_ context.Context, _, _, begins, ends string, rows int) (time.Time, []KeyRowOf, error) {
	at := func(identifier string) int {
		i, _ := slices.BinarySearchFunc(s.rows, identifier, func(r KeyRowOf, id string) int { return strings.Compare(r.Identifier, id) })
		return i
	}
	first, last := at(begins), at(ends)
	found := s.rows[first:min(first+rows, last)]
	s.read += len(found)
	return s.now, found, nil
}

func (s *keysStore) ResetsOf(_ context.Context, _, _ string, identifiers []string) (map[string]*Reset, error) {
	s.looked++
	found := make(map[string]*Reset)
	for i := range s.resets {
		if slices.Contains(identifiers, s.resets[i].Identifier) {
			found[s.resets[i].Identifier] = &s.resets[i]
		}
	}
	return found, nil
}

func (s *keysStore) OverridesOf(ctx context.Context, _, _ string, identifiers []string) (map[string]*Override, error) {
	s.looked++
	found := make(map[string]*Override)
	for _, identifier := range identifiers {
		if o, _ := s.OverrideOf(ctx, "acme", "api", identifier); o != nil {
			found[identifier] = o
		}
	}
	return found, nil
}

func (s *keysStore) TopReports(context.Context, time.Duration, int) (time.Time, []TopReport, error) {
	return s.now, s.reports, s.err
}

func listed(identifier string, rows ...KeyRow) (all []KeyRowOf) {
	for _, r := range rows {
		all = append(all, KeyRowOf{identifier, r})
	}
	return all
}

// keysAt is 15 s into cell 10 of 60 s.
var keysAt = time.UnixMilli(10*60_000 + 15_000)

func keysIn(rows ...[]KeyRowOf) *keysStore {
	s := &keysStore{keyStore: keyStore{now: keysAt}, rows: slices.Concat(rows...)}
	slices.SortStableFunc(s.rows, func(a, b KeyRowOf) int { return strings.Compare(a.Identifier, b.Identifier) })
	return s
}

func list(t *testing.T, s *keysStore, q KeysQuery) KeyPage {
	t.Helper()
	q.Workspace, q.Namespace, q.Limit = "acme", "api", cmp.Or(q.Limit, KeysMax)
	p, err := ListKeys(t.Context(), s, q, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p KeyPage) identifiers() (all []string) {
	for _, k := range p.Keys {
		all = append(all, k.Identifier)
	}
	return all
}

// A page has each key with the cost of all regions, its limit, and when it is free again.
func TestListKeys(t *testing.T) {
	s := keysIn(
		listed("b", published(9, "us", 40, window.Key{}), published(10, "us", 30, window.Key{}), published(10, "eu", 60, window.Key{})),
		listed("a", published(10, "us", 7, window.Key{})),
		listed("reset", published(10, "us", 7, window.Key{})),
		listed("old", published(8, "us", 7, window.Key{})),
	)
	s.overrides = []Override{{Pattern: "b", Limit: 100}}
	s.resets = []Reset{{Identifier: "reset", Generation: 1, SetAt: keysAt}}
	s.reports = []TopReport{reportOf(t, "us", keysAt.UnixMilli(), heartbeat.Top{AtMs: 1, Hot: []heartbeat.TopKey{
		{Workspace: []byte("acme"), Namespace: []byte("api"), Identifier: []byte("a"), DurationMs: 60_000, Count: 7, Limit: 5}}})}
	p := list(t, s, KeysQuery{})
	if got := p.identifiers(); !slices.Equal(got, []string{"a", "b"}) || p.Next != "" || !p.Now.Equal(keysAt) || p.ReportsErr != nil {
		t.Fatalf("%q, %+v", got, p)
	}
	a, b := p.Keys[0].Windows[0], p.Keys[1].Windows[0]
	if b.Effective != 120 || *b.Limit != 100 || b.LimitReported || p.Keys[1].Override.Pattern != "b" {
		t.Errorf("b: %+v", b)
	}
	if a.Effective != 7 || *a.Limit != 5 || !a.LimitReported || p.Keys[0].Override != nil {
		t.Errorf("a: %+v", a)
	}
	// 30 + 60 + 1 fit into 100 when at most 9 of the 40 are left: after 45 s of the cell
	for i, w := range []*KeyWindow{&a, &b} {
		at, ok := p.Keys[i].FreeAt(w, keysAt.UnixMilli())
		want, _ := window.PassesAt(w.Current.Count, w.Previous.Count, 1, *w.Limit, keysAt.UnixMilli(), 60_000)
		if !ok || at != want || at <= keysAt.UnixMilli() {
			t.Errorf("%+v is free at %d, %v", w, at, ok)
		}
	}
	if at, _ := p.Keys[1].FreeAt(&b, keysAt.UnixMilli()); at < 10*60_000+45_000 || at > 10*60_000+47_000 {
		t.Errorf("b is free %d ms into the cell", at-10*60_000)
	}
}

// A page looks for the overrides and resets of all its keys at once.
func TestListKeysLooksUpAllKeysAtOnce(t *testing.T) {
	var rows [][]KeyRowOf
	for i := range KeysMax {
		rows = append(rows, listed(fmt.Sprintf("%04d", i), published(10, "us", 7, window.Key{})))
	}
	s := keysIn(rows...)
	s.overrides, s.resets = []Override{{Pattern: "*", Limit: 9}}, []Reset{{Identifier: "0007", Generation: 1, SetAt: keysAt}}
	if p := list(t, s, KeysQuery{}); len(p.Keys) != KeysMax-1 || *p.Keys[7].Windows[0].Limit != 9 || s.looked != 2 {
		t.Errorf("%d keys, %d calls", len(p.Keys), s.looked)
	}
}

// If the nodes' reports cannot be read, the page has the stored counts all the same.
func TestListKeysWithoutReports(t *testing.T) {
	s := keysIn(listed("a", published(10, "us", 7, window.Key{})))
	s.err = errors.New("down")
	if p := list(t, s, KeysQuery{}); len(p.Keys) != 1 || !errors.Is(p.ReportsErr, s.err) || p.Keys[0].Windows[0].Limit != nil {
		t.Errorf("%+v", p)
	}
}

// All pages together have each key of the prefix once, in order, whatever the lengths of pages and keys are.
func TestPagesOfKeysHaveEachKeyOnce(t *testing.T) {
	for seed := range uint64(20) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var rows [][]KeyRowOf
		want := make(map[string]bool)
		for range 1 + draw.IntN(3000) {
			identifier := string([]byte{"ab\xff\xfe"[draw.IntN(4)], "ab\xff\xfe"[draw.IntN(4)], byte(draw.IntN(256))})
			if want[identifier] {
				continue
			}
			want[identifier] = true
			var parts []KeyRow
			for r := range 1 + draw.IntN(4) {
				parts = append(parts, published(10, fmt.Sprint("r", r), 1, window.Key{}))
			}
			rows = append(rows, listed(identifier, parts...))
		}
		if draw.IntN(2) == 0 { // a key with more rows than a range
			var parts []KeyRow
			for r := range rangeRowsMax + draw.IntN(2*rangeRowsMax) {
				parts = append(parts, published(10, fmt.Sprint("r", r), 1, window.Key{}))
			}
			want["ab"] = true
			rows = append(rows, listed("ab", parts...))
		}
		s := keysIn(rows...)
		for _, prefix := range []string{"", "a", "ab", "\xff", "\xff\xff", "a\xfe", "b\xff", "c"} {
			var got, wanted []string
			for id := range want {
				if strings.HasPrefix(id, prefix) {
					wanted = append(wanted, id)
				}
			}
			slices.Sort(wanted)
			q := KeysQuery{Prefix: prefix, Limit: 1 + draw.IntN(KeysMax)}
			for pages := 0; ; pages++ {
				p := list(t, s, q)
				got = append(got, p.identifiers()...)
				for _, k := range p.Keys {
					if k.Truncated != (k.Identifier == "ab" && k.Windows[0].Current.Count >= rangeRowsMax) {
						t.Fatalf("%q: truncated %v of %d", k.Identifier, k.Truncated, k.Windows[0].Current.Count)
					}
				}
				if len(p.Keys) > q.Limit || pages > len(want) {
					t.Fatalf("%d keys on page %d, limit %d", len(p.Keys), pages, q.Limit)
				}
				if q.After = p.Next; p.Next == "" {
					break
				}
			}
			if !slices.Equal(got, wanted) {
				t.Fatalf("seed %d, prefix %q: %d keys, want %d", seed, prefix, len(got), len(wanted))
			}
		}
	}
}

// A page reads a bounded number of rows, however many keys it leaves out.
func TestAPageOfKeysIsBounded(t *testing.T) {
	var rows [][]KeyRowOf
	for i := range pageRowsMax + 3*rangeRowsMax {
		rows = append(rows, listed(fmt.Sprintf("%06d", i), published(8, "us", 1, window.Key{})))
	}
	s := keysIn(rows...)
	p := list(t, s, KeysQuery{})
	if len(p.Keys) != 0 || p.Next == "" || s.read < pageRowsMax || s.read >= pageRowsMax+rangeRowsMax {
		t.Errorf("%d keys, next %q, %d rows", len(p.Keys), p.Next, s.read)
	}
	s.read = 0
	if p = list(t, s, KeysQuery{After: p.Next}); p.Next != "" || s.read > 4*rangeRowsMax {
		t.Errorf("the rest: next %q, %d rows", p.Next, s.read)
	}
}

// A page reads few rows beyond its own, also if its keys have several.
func TestAPageOfKeysReadsItsRows(t *testing.T) {
	var rows [][]KeyRowOf
	for i := range 10_000 {
		var parts []KeyRow
		for r := range 6 {
			parts = append(parts, published(10, fmt.Sprint("r", r), 1, window.Key{}))
		}
		rows = append(rows, listed(fmt.Sprintf("%06d", i), parts...))
	}
	s := keysIn(rows...)
	for _, limit := range []int{1, 50, KeysMax} {
		s.read = 0
		if p := list(t, s, KeysQuery{Limit: limit}); len(p.Keys) != limit || s.read > 6*limit+6*limit/4+rangeRowsMin {
			t.Errorf("%d keys of %d: %d rows", len(p.Keys), limit, s.read)
		}
	}
}

func TestKeysQueriesAreBounded(t *testing.T) {
	for field, q := range map[string]KeysQuery{
		"workspace": {Namespace: "api", Limit: 1},
		"namespace": {Workspace: "acme", Limit: 1},
		"prefix":    {Workspace: "acme", Namespace: "api", Prefix: strings.Repeat("x", 256), Limit: 1},
		"after is":  {Workspace: "acme", Namespace: "api", Prefix: "b", After: "a", Limit: 1},
		"limit":     {Workspace: "acme", Namespace: "api", Limit: KeysMax + 1},
	} {
		_, err := ListKeys(t.Context(), keysIn(), q, time.Minute)
		if !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
