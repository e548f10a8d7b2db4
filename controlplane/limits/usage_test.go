package limits

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/workspaces"
)

// usageTable is the stored usage in memory.
type usageTable struct {
	now     time.Time
	reports []UsageHour
	hours   map[heartbeat.UsageOf][]UsageHour
}

func (s *usageTable) Now(context.Context) (time.Time, error) { return s.now, nil }

func within(hours []UsageHour, from, until time.Time) []UsageHour {
	return slices.DeleteFunc(slices.Clone(hours), func(h UsageHour) bool { return h.At.Before(from) || !h.At.Before(until) })
}

func (s *usageTable) UsageReported(_ context.Context, from, until time.Time, _ int) ([]UsageHour, error) {
	return within(s.reports, from, until), nil
}

func (s *usageTable) UsageOf(_ context.Context, of heartbeat.UsageOf, from, until time.Time, _ int) ([]UsageHour, error) {
	return within(s.hours[of], from, until), nil
}

func (s *usageTable) UsageTop(_ context.Context, names []string, region string, from, until time.Time,
	rows int) (top []UsageSeries, err error) {
	for of, hours := range s.hours {
		sum := heartbeat.UsageCost{}
		for _, h := range within(hours, from, until) {
			if region == "" || h.Region == region {
				sum.Accepted, sum.Denied = sum.Accepted+h.Accepted, sum.Denied+h.Denied
			}
		}
		if len(names) == 0 || slices.Contains(names, of.Workspace) {
			top = append(top, UsageSeries{UsageOf: of, Sum: sum})
		}
	}
	slices.SortFunc(top, func(a, b UsageSeries) int { return int(b.Sum.Accepted - a.Sum.Accepted) })
	return top[:min(len(top), rows)], nil
}

var usageNow = time.Date(2026, 3, 5, 12, 30, 0, 0, time.UTC)

// ago is the hour n hours before the hour that is under way.
func ago(n int) time.Time { return usageNow.Truncate(time.Hour).Add(-time.Duration(n) * time.Hour) }

// An hour without a report of a region that reported before and after it is unknown, which differs from no cost. So is
// an hour before any region has reported.
func TestUsageGapsAreUnknown(t *testing.T) {
	s := &usageTable{now: usageNow, hours: map[heartbeat.UsageOf][]UsageHour{}}
	for _, n := range []int{8, 7, 6, 3, 2, 1} {
		s.reports = append(s.reports, UsageHour{At: ago(n), Region: "eu"})
	}
	for _, n := range []int{7, 6, 5, 3} { // us reports nothing for the last hours
		s.reports = append(s.reports, UsageHour{At: ago(n), Region: "us"})
	}
	of := heartbeat.UsageOf{Workspace: "w", Namespace: "n"}
	s.hours[of] = []UsageHour{{ago(6), "eu", heartbeat.UsageCost{Accepted: 5, Denied: 1}},
		{ago(6), "us", heartbeat.UsageCost{Accepted: 2}}, {ago(1), "eu", heartbeat.UsageCost{Accepted: 1}}}
	for region, want := range map[string]string{
		"":   "9?eu,us 8 7 6=7/1 5?eu 4?eu,us 3 2?us 1=1/0?us 0?us",
		"eu": "9?eu 8 7 6=5/1 5?eu 4?eu 3 2 1=1/0 0",
		"us": "9?us 8?us 7 6=2/0 5 4?us 3 2?us 1?us 0?us",
	} {
		u, err := GetUsage(t.Context(), s, UsageQuery{Workspace: "w", Namespace: "n", Region: region, Limit: 1,
			From: usageNow.Add(-9 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, at := range u.Times {
			text := fmt.Sprint(9 - i)
			if !at.At.Equal(ago(9 - i)) {
				t.Fatalf("step %d is at %v", i, at.At)
			}
			if n := u.Series[0].Costs[i]; n != (heartbeat.UsageCost{}) {
				text += fmt.Sprintf("=%d/%d", n.Accepted, n.Denied)
			}
			if !at.Known {
				text += "?" + strings.Join(at.Missing, ",")
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("region %q: %s\nwant %s", region, strings.Join(got, " "), want)
		}
	}
}

// If no region has reported in the whole range, the regions that reported before it are missing.
func TestUsageOfAnOutageNamesEveryRegion(t *testing.T) {
	s := &usageTable{now: usageNow, reports: []UsageHour{{At: ago(50), Region: "us"}, {At: ago(49), Region: "eu"}}}
	for region, want := range map[string][]string{"": {"eu", "us"}, "us": {"us"}, "ap": nil} {
		u, err := GetUsage(t.Context(), s, UsageQuery{Limit: 1, Region: region, From: ago(2), Until: ago(-1)})
		if err != nil || len(u.Times) != 4 {
			t.Fatalf("%+v, %v", u, err)
		}
		for i, at := range u.Times {
			if i == 3 { // it has not begun
				want = nil
			}
			if at.Known || !slices.Equal(at.Missing, want) {
				t.Errorf("region %q, step %d: %+v, want %v", region, i, at, want)
			}
		}
	}
}

// crowdedTable has as many hours as a read may return.
type crowdedTable struct {
	*usageTable
	reported, costs bool // which reads are full
}

func (s crowdedTable) UsageReported(ctx context.Context, from, until time.Time, rows int) ([]UsageHour, error) {
	if s.reported {
		return make([]UsageHour, rows), nil
	}
	return s.usageTable.UsageReported(ctx, from, until, rows)
}

func (s crowdedTable) UsageOf(ctx context.Context, of heartbeat.UsageOf, from, until time.Time, rows int) ([]UsageHour, error) {
	if s.costs {
		return make([]UsageHour, rows), nil
	}
	return s.usageTable.UsageOf(ctx, of, from, until, rows)
}

// An answer is truncated if a read returned as many rows as it may.
func TestUsageOfTooManyRowsIsTruncated(t *testing.T) {
	table := &usageTable{now: usageNow, reports: []UsageHour{{At: ago(1), Region: "eu"}}}
	for _, s := range []crowdedTable{{table, false, false}, {table, false, true}, {table, true, false}} {
		u, err := GetUsage(t.Context(), s, UsageQuery{Workspace: "w", Namespace: "n", Limit: 1})
		if want := s.reported || s.costs; err != nil || u.Truncated != want {
			t.Errorf("%+v: truncated %v, %v", s, u.Truncated, err)
		}
	}
}

// Days are sums of hours, and unknown if an hour of them is.
func TestUsageOfDays(t *testing.T) {
	s := &usageTable{now: usageNow, hours: map[heartbeat.UsageOf][]UsageHour{}}
	of := heartbeat.UsageOf{Workspace: "w", Namespace: "n"}
	for n := range 13 + 48 {
		if n != 13+30 {
			s.reports = append(s.reports, UsageHour{At: ago(n), Region: "eu"})
		}
		s.hours[of] = append(s.hours[of], UsageHour{ago(n), "eu", heartbeat.UsageCost{Accepted: 1, Denied: 2}})
	}
	u, err := GetUsage(t.Context(), s, UsageQuery{Workspace: "w", Limit: 5, From: usageNow.Add(-48 * time.Hour), Step: usageDay})
	if err != nil || len(u.Times) != 3 || len(u.Series) != 1 {
		t.Fatalf("%+v, %v", u, err)
	}
	want := []heartbeat.UsageCost{{Accepted: 24, Denied: 48}, {Accepted: 24, Denied: 48}, {Accepted: 13, Denied: 26}}
	if !slices.Equal(u.Series[0].Costs, want) || u.Times[0].Known || !u.Times[1].Known || !u.Times[2].Known {
		t.Errorf("%+v %+v", u.Series[0].Costs, u.Times)
	}
}

// A token that is limited to workspaces receives no other namespaces, and no others.
func TestUsageOfVisibleWorkspaces(t *testing.T) {
	s := &usageTable{now: usageNow, hours: map[heartbeat.UsageOf][]UsageHour{}}
	for i, of := range []heartbeat.UsageOf{{}, {Workspace: "acme", Namespace: "a"}, {Workspace: "other", Namespace: "b"},
		{Workspace: "acme", Namespace: "c"}} {
		s.hours[of] = []UsageHour{{ago(1), "eu", heartbeat.UsageCost{Accepted: int64(10 - i)}}}
	}
	only, err := workspaces.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		visible   *workspaces.Set
		limit     int
		want      string
		truncated bool
	}{{nil, 10, "/ acme/a other/b acme/c", false}, {nil, 2, "/ acme/a", true}, {only, 10, "acme/a acme/c", false}} {
		u, err := GetUsage(t.Context(), s, UsageQuery{Limit: c.limit, Visible: c.visible})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, series := range u.Series {
			got = append(got, series.Workspace+"/"+series.Namespace)
		}
		if strings.Join(got, " ") != c.want || u.Truncated != c.truncated {
			t.Errorf("%q, truncated %v", got, u.Truncated)
		}
	}
}

func TestUsageQueryNamesTheFieldAndTheBound(t *testing.T) {
	for says, q := range map[string]UsageQuery{
		`namespace is "n" without a workspace`: {Namespace: "n", Limit: 1},
		"limit is 0 (1 to 50)":                 {},
		"step is 1m0s (an hour or a day)":      {Limit: 1, Step: time.Minute},
		"from_ms is 1764851400000 (1764934200000 to 1772713800000: until_ms, and at most 2161h0m0s before it)": {Limit: 1,
			From: usageNow.Add(-91 * usageDay)},
		"from_ms is 1772717400000 (1764934200000 to 1772713800000: until_ms, ": {Limit: 1, From: usageNow.Add(time.Hour)},
		"from_ms is -1 (0 to 253402300799999, Unix ms)":                        {Limit: 1, From: time.UnixMilli(-1)},
		"until_ms is 9223372036854775807 (0 to 253402300799999, Unix ms)":      {Limit: 1, Until: time.UnixMilli(math.MaxInt64)},
		"2161 steps of 50 namespaces (at most":                                 {Limit: 50, Step: time.Hour, From: usageNow.Add(-90 * usageDay)},
		"region is":                                                            {Limit: 1, Region: strings.Repeat("x", 49)},
	} {
		_, err := GetUsage(t.Context(), &usageTable{now: usageNow}, q)
		if !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// Namespaces of other workspaces, however many there are, hide none of a limited token's.
func TestUsageOfALimitedTokenIsNotHiddenByOtherWorkspaces(t *testing.T) {
	mine := heartbeat.UsageOf{Workspace: "mine", Namespace: "n"}
	hours := func(cost int64) []UsageHour {
		return []UsageHour{{At: ago(1), Region: "eu", UsageCost: heartbeat.UsageCost{Accepted: cost}}}
	}
	table := &usageTable{now: usageNow, hours: map[heartbeat.UsageOf][]UsageHour{mine: hours(1)}}
	for n := range usageNamespaceMax {
		table.hours[heartbeat.UsageOf{Workspace: "other", Namespace: fmt.Sprint(n)}] = hours(2)
	}
	visible, err := workspaces.New("mine")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := GetUsage(t.Context(), table, UsageQuery{Limit: 10, Visible: visible})
	if err != nil || len(answer.Series) != 1 || answer.Series[0].UsageOf != mine {
		t.Errorf("%+v, %v", answer.Series, err)
	}
}
