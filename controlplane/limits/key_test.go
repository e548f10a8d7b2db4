package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/window"
)

// keyStore is a KeyStore in memory, with a single key.
type keyStore struct {
	now       time.Time
	rows      []KeyRow
	reset     *Reset
	overrides []Override
	shadow    bool // of the namespace
}

func (s keyStore) Namespace(_ context.Context, workspace, namespace string) (*Namespace, error) {
	if !s.shadow {
		return nil, nil
	}
	n := DefaultNamespace(workspace, namespace)
	n.Shadow = true
	return &n, nil
}

func (s keyStore) KeyRows(_ context.Context, _, _, _ string, rows int) (time.Time, []KeyRow, error) {
	return s.now, s.rows[:min(rows, len(s.rows))], nil
}

func (s keyStore) KeyReset(context.Context, string, string, string) (*Reset, error) {
	return s.reset, nil
}

func (s keyStore) OverrideOf(_ context.Context, _, _, identifier string) (applies *Override, err error) {
	for i, o := range s.overrides {
		if window.Matches(o.Pattern, identifier) && (applies == nil || window.ComparePatterns(o.Pattern, applies.Pattern) < 0) {
			applies = &s.overrides[i]
		}
	}
	return applies, nil
}

// published returns a row of a key of 60 s.
func published(sequence int64, region string, count int64, of window.Key) KeyRow {
	if of.Duration == 0 {
		of.Duration = time.Minute
	}
	return KeyRow{StoredDuration: window.StoredDuration(&of), Sequence: sequence, KeyPart: KeyPart{Region: region, Count: count}}
}

func told(r KeyReport) string {
	var lines []string
	for _, w := range r.Windows {
		line := fmt.Sprintf("%v %d: %d%v + %d%v x %.2f", w.Mode, w.DurationMs/1000, w.Current.Count, parts(w.Current), w.Previous.Count, parts(w.Previous), w.Weight)
		if w.Limit != nil {
			line += fmt.Sprintf(", limit %d", *w.Limit)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func parts(c KeyCell) (words []string) {
	for _, p := range c.Parts {
		words = append(words, fmt.Sprint(p.Region, " ", p.Count))
	}
	return words
}

// A key shows its current and previous cell with each region's part, and the limit that applies: now is 15 s into cell
// 10 of 60 s.
func TestGetKey(t *testing.T) {
	now := time.UnixMilli(10*60_000 + 15_000)
	two := []KeyRow{published(9, "us", 40, window.Key{}), published(10, "us", 30, window.Key{}), published(10, "eu", 60, window.Key{})}
	estimate := window.Key{Mode: window.Estimate}
	for name, tc := range map[string]struct {
		store keyStore
		limit int64
		cost  int64
		want  string
	}{
		"nothing":                       {keyStore{}, 100, 1, ""},
		"no limit":                      {keyStore{rows: two}, 0, 1, "exact 60: 90[eu 60 us 30] + 40[us 40] x 0.75"},
		"full":                          {keyStore{rows: two}, 100, 1, "exact 60: 90[eu 60 us 30] + 40[us 40] x 0.75, limit 100"},
		"room":                          {keyStore{rows: two}, 200, 1, "exact 60: 90[eu 60 us 30] + 40[us 40] x 0.75, limit 200"},
		"costs more than the limit":     {keyStore{rows: two}, 100, 101, "exact 60: 90[eu 60 us 30] + 40[us 40] x 0.75, limit 100"},
		"the override":                  {keyStore{rows: two, overrides: []Override{{Pattern: "*", Limit: 1}, {Pattern: "user_1", Limit: 200}}}, 0, 1, "exact 60: 90[eu 60 us 30] + 40[us 40] x 0.75, limit 200"},
		"blocked":                       {keyStore{rows: two, overrides: []Override{{Pattern: "user_*"}}}, 0, 1, "exact 60: 90[eu 60 us 30] + 40[us 40] x 0.75, limit 0"},
		"an override of other duration": {keyStore{rows: two, overrides: []Override{{Pattern: "*", Limit: 1, DurationMs: 1000}}}, 0, 1, "exact 60: 90[eu 60 us 30] + 40[us 40] x 0.75"},
		"modes apart": {keyStore{rows: append(two[:1:1], published(10, "eu", 5, estimate))}, 0, 1,
			"exact 60: 0[] + 40[us 40] x 0.75\nestimate 60: 5[eu 5] + 0[] x 0.75"},
		"cells that are over or to come":  {keyStore{rows: []KeyRow{published(8, "eu", 9, window.Key{}), published(11, "eu", 9, window.Key{})}}, 0, 1, "exact 60: 0[] + 0[] x 0.75"},
		"what no data plane writes":       {keyStore{rows: []KeyRow{{StoredDuration: 7 << 40, Sequence: 10}, {StoredDuration: 0, Sequence: 10}}}, 0, 1, ""},
		"reset in this cell":              {keyStore{rows: two, reset: &Reset{Generation: 3, SetAt: now.Add(-time.Second)}}, 100, 1, "exact 60: 0[] + 0[] x 0.75, limit 100"},
		"reset, and counted again":        {keyStore{rows: append(two[:3:3], published(10, "eu", 2, window.Key{Generation: 3})), reset: &Reset{Generation: 3, SetAt: now.Add(-time.Second)}}, 0, 1, "exact 60: 2[eu 2] + 0[] x 0.75"},
		"reset in the cell before":        {keyStore{rows: append(two[:3:3], published(9, "eu", 2, window.Key{Generation: 3})), reset: &Reset{Generation: 3, SetAt: now.Add(-time.Minute)}}, 0, 1, "exact 60: 90[eu 60 us 30] + 2[eu 2] x 0.75"},
		"a reset that nothing is left of": {keyStore{rows: two, reset: &Reset{Generation: 3, SetAt: now.Add(-time.Hour)}}, 0, 1, "exact 60: 90[eu 60 us 30] + 40[us 40] x 0.75"},
	} {
		tc.store.now = now
		r, err := GetKey(t.Context(), tc.store, KeyQuery{"acme", "api", "user_1", tc.limit, tc.cost})
		if got := told(r); got != tc.want || err != nil {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, tc.want)
		}
	}
}

// Nodes' reports of the key decide whether a cost passes. Stored counts do not, however large they are.
func TestAKeyIsJudgedByWhatNodesReport(t *testing.T) {
	now := time.UnixMilli(10*60_000 + 15_000)
	full := keyStore{now: now, rows: []KeyRow{published(10, "eu", 1000, window.Key{})}}
	key := func(identifier string, durationMs, limit, count int64) TopKey {
		return TopKey{Workspace: "acme", Namespace: "api", Identifier: identifier, DurationMs: durationMs, Limit: limit, Count: count,
			ReportedAt: now.Add(-999 * time.Millisecond)}
	}
	others := []TopKey{key("user_2", 60_000, 100, 99), key("user_1", 1000, 100, 99),
		{Workspace: "beta", Namespace: "api", Identifier: "user_1", DurationMs: 60_000, Limit: 100, Count: 99},
		{Workspace: "acme", Namespace: "web", Identifier: "user_1", DurationMs: 60_000, Limit: 100, Count: 99}}
	for name, tc := range map[string]struct {
		limit, cost int64
		reported    []TopKey
		want        Verdict
	}{
		"no limit is known":              {0, 1, others, Unknown},
		"no node reports the key":        {100, 1, others, Unknown},
		"there is room":                  {100, 10, []TopKey{key("user_1", 60_000, 100, 90)}, Passes},
		"there is none":                  {100, 11, []TopKey{key("user_1", 60_000, 100, 90)}, Denied},
		"nodes have more than the limit": {100, 1, []TopKey{key("user_1", 60_000, 100, 1<<62)}, Denied},
		"more than the limit":            {100, 101, nil, NeverPasses},
		"the limit of nodes":             {0, 1, []TopKey{key("user_1", 60_000, 50, 50)}, Denied},
		"nodes know no limit":            {0, 1, []TopKey{key("user_1", 60_000, -1, 50)}, Unknown},
	} {
		q := KeyQuery{"acme", "api", "user_1", tc.limit, tc.cost}
		r, err := GetKey(t.Context(), full, q)
		if err != nil || r.Windows[0].Verdict != Unjudged {
			t.Fatalf("%s: %v, %+v before it is judged", name, err, r.Windows)
		}
		r.Judge(q, TopKeys{Keys: tc.reported})
		if w := r.Windows[0]; w.Verdict != tc.want || w.LimitReported != (name == "the limit of nodes") {
			t.Errorf("%s: verdict %d, want %d (%+v)", name, w.Verdict, tc.want, w)
		}
	}
}

// A report from before the reset, or from before the present window, gives no verdict on the key. If reports are
// missing, the verdict is never that there is room.
func TestAKeyIsNotJudgedByReportsOfAnotherTime(t *testing.T) {
	now := time.UnixMilli(10*60_000 + 15_000)
	at := func(ago time.Duration, count int64) TopKeys {
		return TopKeys{Keys: []TopKey{{Workspace: "acme", Namespace: "api", Identifier: "user_1", DurationMs: 60_000,
			Limit: 100, Count: count, ReportedAt: now.Add(-ago)}}}
	}
	partial := func(top TopKeys) TopKeys { top.Unreadable = 1; return top }
	cut := func(top TopKeys) TopKeys { top.Truncated = true; return top }
	reset := &Reset{SetAt: now.Add(-10 * time.Second)}
	for name, tc := range map[string]struct {
		reset *Reset
		top   TopKeys
		want  Verdict
	}{
		"of this window":                  {nil, at(59*time.Second, 100), Denied},
		"of a window that has ended":      {nil, at(time.Minute, 100), Unknown},
		"room, in a window that is over":  {nil, at(time.Minute, 0), Unknown},
		"since the reset":                 {reset, at(9*time.Second, 100), Denied},
		"from before the reset":           {reset, at(10*time.Second, 100), Unknown},
		"room, where a report is missing": {nil, partial(at(0, 50)), Unknown},
		"room, among the first reports":   {nil, cut(at(0, 50)), Unknown},
		"none, where a report is missing": {nil, partial(at(0, 100)), Denied},
	} {
		q := KeyQuery{"acme", "api", "user_1", 100, 1}
		r, err := GetKey(t.Context(), keyStore{now: now, rows: []KeyRow{published(10, "eu", 1, window.Key{})}}, q)
		if err != nil {
			t.Fatal(err)
		}
		r.Reset = tc.reset
		if r.Judge(q, tc.top); r.Windows[0].Verdict != tc.want {
			t.Errorf("%s: verdict %d, want %d", name, r.Windows[0].Verdict, tc.want)
		}
	}
}

// In shadow mode of the namespace or the override every cost passes: over the limit, blocked, whatever nodes report.
func TestEveryCostPassesInShadowMode(t *testing.T) {
	now := time.UnixMilli(10*60_000 + 15_000)
	row := published(10, "eu", 1000, window.Key{})
	none := keyStore{now: now, rows: []KeyRow{row}}
	space := none
	space.shadow, space.overrides = true, []Override{{Pattern: "user_*", Limit: 100}}
	override := none
	override.overrides = []Override{{Pattern: "user_*", Shadow: true}}
	other := none
	other.overrides = []Override{{Pattern: "user_*", Limit: 100}, {Pattern: "*", Shadow: true}}
	for name, tc := range map[string]struct {
		store  keyStore
		shadow bool
		want   Verdict
	}{"neither": {none, false, Unknown}, "the namespace": {space, true, Passes}, "the override, which blocks": {override, true, Passes},
		"another override": {other, false, NeverPasses}} {
		q := KeyQuery{"acme", "api", "user_1", 0, 101}
		r, err := GetKey(t.Context(), tc.store, q)
		if err != nil || r.Shadow != tc.shadow {
			t.Errorf("%s: shadow %v, %v", name, r.Shadow, err)
		}
		if r.Judge(q, TopKeys{Reports: Reports{Truncated: true}}); r.Windows[0].Verdict != tc.want {
			t.Errorf("%s: verdict %d, want %d", name, r.Windows[0].Verdict, tc.want)
		}
		s := keysIn(listed("user_1", row))
		s.keyStore = tc.store
		s.now = keysAt
		k := list(t, s, KeysQuery{}).Keys[0]
		if at, ok := k.FreeAt(&k.Windows[0], 7); k.Shadow != tc.shadow || (ok && at == 7) != tc.shadow {
			t.Errorf("%s, listed: shadow %v, free at %d, %v", name, k.Shadow, at, ok)
		}
	}
}

// The rows of a key are bounded, and the report is marked if there are more.
func TestGetKeyIsBounded(t *testing.T) {
	s := keyStore{now: time.UnixMilli(600_000)}
	for i := range KeyRowsMax + 1 {
		s.rows = append(s.rows, published(10, fmt.Sprintf("r%04d", i), 1, window.Key{}))
	}
	r, err := GetKey(t.Context(), s, KeyQuery{"acme", "api", "user_1", 0, 1})
	if err != nil || !r.Truncated || r.Windows[0].Current.Count != KeyRowsMax {
		t.Errorf("%v, %v", r.Truncated, err)
	}
	for field, q := range map[string]KeyQuery{
		"workspace": {"", "n", "i", 0, 1}, "namespace": {"w", strings.Repeat("n", 256), "i", 0, 1}, "identifier": {"w", "n", "", 0, 1},
		"limit": {"w", "n", "i", -1, 1}, "cost": {"w", "n", "i", 1, 0},
	} {
		if _, err := GetKey(t.Context(), s, q); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
