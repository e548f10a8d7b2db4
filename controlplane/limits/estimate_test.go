package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// limitRows is a Store in memory.
type limitRows struct {
	topReports
	overrides []Override
	looked    *int
	err       error
}

func (r limitRows) OverrideOf(_ context.Context, _, _, identifier string) (applies *Override, err error) {
	*r.looked++
	for i, o := range r.overrides {
		if window.Matches(o.Pattern, identifier) && (applies == nil || window.ComparePatterns(o.Pattern, applies.Pattern) < 0) {
			applies = &r.overrides[i]
		}
	}
	return applies, r.err
}

// An estimate that lacks a node's report is marked as partial.
func TestAnEstimateWithoutAReportIsOfAPart(t *testing.T) {
	store := limitRows{looked: new(int), topReports: topReports{
		reportOf(t, "eu", 99_000, heartbeat.Top{Hot: []heartbeat.TopKey{hot("user_1", 150, 100, 200)}}),
		{Region: "us", Document: []byte("{")},
	}}
	e, err := EstimateLimits(t.Context(), store, []Change{{Workspace: "w", Namespace: "n", Pattern: "*", Limit: 100}}, nil, time.Minute)
	if err != nil || !e.Truncated || e.Denied != 50 {
		t.Errorf("%+v, %v", e, err)
	}
}

// A new limit would have denied the window's cost beyond it. A key belongs to its most specific override, whether that
// override changes or stays.
func TestEstimateLimits(t *testing.T) {
	store := limitRows{looked: new(int), topReports: topReports{
		reportOf(t, "eu", 99_000, heartbeat.Top{Hot: []heartbeat.TopKey{hot("user_1", 150, 100, 200), hot("user_2", 50, 50, 200), hot("bot_1", 30, 30, 200)}}),
		reportOf(t, "us", 97_000, heartbeat.Top{Hot: []heartbeat.TopKey{hot("user_1", 90, 50, 200), hot("user_3", 300, 300, 400)}}),
	}}
	change := func(pattern string, limit int64) Change {
		return Change{Workspace: "w", Namespace: "n", Pattern: pattern, Limit: limit}
	}
	exact := Override{Workspace: "w", Namespace: "n", Pattern: "user_3", Limit: 400}
	deleted, longer, shadow, other := change("user_*", 0), change("user_*", 100), change("user_*", 100), change("user_*", 100)
	deleted.Deleted, longer.DurationMs, shadow.Shadow, other.Namespace = true, 60_000, true, "m"
	unset := change("user_3", 0)
	unset.Deleted = true
	for what, tc := range map[string]struct {
		overrides []Override
		changes   []Change
		want      string
	}{
		"a pattern":                      {nil, []Change{change("user_*", 100)}, "3 matched, 0 unknown: 250 of 500 of 2 keys [user_3 user_1]"},
		"a more specific one stays":      {[]Override{exact}, []Change{change("user_*", 100)}, "2 matched, 0 unknown: 50 of 200 of 1 keys [user_1]"},
		"it is changed itself":           {[]Override{exact}, []Change{change("user_*", 100), change("user_3", 250)}, "3 matched, 0 unknown: 100 of 500 of 2 keys [user_3 user_1]"},
		"it is taken away":               {[]Override{exact}, []Change{change("user_*", 100), unset}, "3 matched, 1 unknown: 50 of 200 of 1 keys [user_1]"},
		"a less specific one":            {[]Override{{Pattern: "*"}}, []Change{change("user_*", 100)}, "3 matched, 0 unknown: 250 of 500 of 2 keys [user_3 user_1]"},
		"a block":                        {nil, []Change{change("bot_1", 0)}, "1 matched, 0 unknown: 30 of 30 of 1 keys [bot_1]"},
		"a larger limit":                 {nil, []Change{change("user_*", 1000)}, "3 matched, 0 unknown: 0 of 500 of 0 keys []"},
		"the caller's limit, not known":  {nil, []Change{deleted}, "3 matched, 3 unknown: 0 of 0 of 0 keys []"},
		"another window, not comparable": {nil, []Change{longer}, "3 matched, 3 unknown: 0 of 0 of 0 keys []"},
		"shadow denies nothing":          {nil, []Change{shadow}, "3 matched, 0 unknown: 0 of 500 of 0 keys []"},
		"of another namespace":           {nil, []Change{other}, "0 matched, 0 unknown: 0 of 0 of 0 keys []"},
	} {
		store.overrides = tc.overrides
		e, err := EstimateLimits(t.Context(), store, tc.changes, nil, time.Minute)
		var worst []string
		for _, k := range e.Worst {
			worst = append(worst, k.Identifier)
		}
		got := fmt.Sprintf("%d matched, %d unknown: %d of %d of %d keys %v", e.Matched, e.Unknown, e.Denied, e.Cost, e.Keys, worst)
		if err != nil || got != tc.want || e.Reported != 4 || e.Nodes != 2 || e.Oldest != 3*time.Second || e.Truncated {
			t.Errorf("%s: %s, %+v, %v; want %s", what, got, e, err, tc.want)
		}
	}
	store.err = errors.New("gone")
	if _, err := EstimateLimits(t.Context(), store, []Change{change("*", 1)}, nil, time.Minute); !errors.Is(err, store.err) {
		t.Errorf("%v", err)
	}
}

// A network's change counts the keys of addresses in it, without the keys that a longer network or exactly their
// override applies to. The deletion of an override that can no longer be set is estimated, too.
func TestEstimateLimitsOfNetworks(t *testing.T) {
	store := limitRows{looked: new(int), topReports: topReports{
		reportOf(t, "eu", 99_000, heartbeat.Top{Hot: []heartbeat.TopKey{hot("203.0.113.1", 90, 90, 200), hot("203.0.113.200", 80, 80, 200), hot("2001:db8::/64", 70, 70, 200), hot("203.0.113.9", 60, 60, 200), hot("10.0.0.1/8", 50, 50, 200)}}),
	}, overrides: []Override{{Workspace: "w", Namespace: "n", Pattern: "203.0.113.128/25", Limit: 200}, {Workspace: "w", Namespace: "n", Pattern: "203.0.113.9", Limit: 200}, {Workspace: "w", Namespace: "n", Pattern: "*", Limit: 200}}}
	change := func(pattern string) Change { return Change{Workspace: "w", Namespace: "n", Pattern: pattern} }
	deleted := Change{Workspace: "w", Namespace: "n", Pattern: "10.0.0.1/8", Deleted: true}
	for _, tc := range []struct {
		changes []Change
		matched int
		denied  int64
	}{
		{[]Change{change("203.0.113.0/24")}, 1, 90},
		{[]Change{change("203.0.113.0/24"), change("203.0.113.200/32")}, 2, 170},
		{[]Change{change("203.0.113.9/32")}, 0, 0},
		{[]Change{change("2001:db8::/32")}, 1, 70},
		{[]Change{change("::/0"), change("0.0.0.0/0")}, 3, 210}, // 10.0.0.1/8 is in 0.0.0.0/0
		{[]Change{deleted}, 1, 0},
	} {
		e, err := EstimateLimits(t.Context(), store, tc.changes, nil, time.Minute)
		if err != nil || e.Matched != tc.matched || e.Denied != tc.denied {
			t.Errorf("%+v: %+v, %v; want %d matched, %d denied", tc.changes, e, err, tc.matched, tc.denied)
		}
	}
	if _, err := EstimateLimits(t.Context(), store, []Change{change("10.0.0.1/8")}, nil, time.Minute); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// An estimate bounds how many keys it looks up, how many it names, and how many changes it takes.
func TestEstimateLimitsIsBounded(t *testing.T) {
	store := limitRows{looked: new(int)}
	for node := range 15 {
		var top heartbeat.Top
		for i := range 20 {
			top.Hot = append(top.Hot, hot(fmt.Sprintf("user_%d_%d", node, i), 10, 10, 20))
		}
		store.topReports = append(store.topReports, reportOf(t, "eu", 99_000, top))
	}
	one := Change{Workspace: "w", Namespace: "n", Pattern: "*", Limit: 1}
	e, err := EstimateLimits(t.Context(), store, []Change{one}, nil, time.Minute)
	if err != nil || e.Reported != 300 || e.Matched != limitKeysMax || *store.looked != limitKeysMax || !e.Truncated || len(e.Worst) != limitWorstMax {
		t.Errorf("%+v, %d looked up, %v", e, *store.looked, err)
	}
	bad := one
	bad.Limit = -1
	for says, changes := range map[string][]Change{
		"changes has 0 (1 to 64)":  nil,
		"changes has 65 (1 to 64)": slices.Repeat([]Change{one}, 65),
		"changes[1]: ":             {one, bad},
	} {
		if _, err := EstimateLimits(t.Context(), store, changes, nil, time.Minute); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}
