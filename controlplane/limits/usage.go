package limits

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

// Bounds of GetUsage.
const (
	UsageSpanMax   = 90*24*time.Hour + time.Hour
	UsageSeriesMax = 50
	// UsageValuesMax bounds the steps of all series together.
	UsageValuesMax = 25_000

	// usageMsMax is the last moment of the year 9999.
	usageMsMax = 253_402_300_799_999

	usageDay          = 24 * time.Hour
	usageRegionBytes  = 48
	usageRowsMax      = 1 << 20 // that a statement returns
	usageNamespaceMax = 20_000  // namespaces that are ranked
)

// UsageQuery selects the usage of namespaces.
type UsageQuery struct {
	Workspace, Namespace string    // "" for all; a namespace needs its workspace
	Region               string    // "" for all
	From, Until          time.Time // zero: a day before Until, and now
	Step                 time.Duration
	Limit                int // 1 to UsageSeriesMax, if Namespace is ""

	// Visible are the workspaces that the answer may hold.
	Visible *workspaces.Set
}

// Usage is the answer to a UsageQuery.
type Usage struct {
	Now       time.Time // by the clock of the database
	Step      time.Duration
	Times     []UsageTime
	Series    []UsageSeries // the most cost first
	Truncated bool          // more namespaces had cost, or values are too low because a read had too many rows
}

// UsageTime is a step of a Usage.
type UsageTime struct {
	At    time.Time
	Known bool // each region has reported in each of its hours

	// Missing are the regions that have not. If a step that has begun lacks the reports of all, it names every region
	// that has reported in the range, or if none has, in the 90 days before it.
	Missing []string
}

// UsageSeries is the usage of a namespace. Both names are empty for the namespaces that nodes had no room for.
type UsageSeries struct {
	heartbeat.UsageOf
	Sum   heartbeat.UsageCost
	Costs []heartbeat.UsageCost // of each step
}

// UsageHour is a stored hour of a namespace, or the report of a region, without cost.
type UsageHour struct {
	At     time.Time
	Region string
	heartbeat.UsageCost
}

// UsageStore reads the stored usage, of hours that begin at from or later, and before until.
type UsageStore interface {
	Now(ctx context.Context) (time.Time, error)
	// UsageReported returns the hours in which regions have reported.
	UsageReported(ctx context.Context, from, until time.Time, rows int) ([]UsageHour, error)
	// UsageOf returns the hours of a namespace.
	UsageOf(ctx context.Context, of heartbeat.UsageOf, from, until time.Time, rows int) ([]UsageHour, error)
	// UsageTop returns the namespaces with the most cost, with their sums. No workspaces are all, and region "" is all.
	UsageTop(ctx context.Context, workspaces []string, region string, from, until time.Time,
		rows int) ([]UsageSeries, error)
}

// prepare sets what is left out, rounds the times, and returns the first field outside its bounds.
func (q *UsageQuery) prepare(now time.Time) (steps int, err error) {
	switch {
	case q.Namespace != "" && q.Workspace == "":
		return 0, fmt.Errorf("%w: namespace is %q without a workspace", controlplane.ErrInvalid, q.Namespace)
	case q.Step != 0 && q.Step != time.Hour && q.Step != usageDay:
		return 0, fmt.Errorf("%w: step is %v (an hour or a day)", controlplane.ErrInvalid, q.Step)
	}
	if err := cmp.Or(controlplane.ValidateLength("workspace", q.Workspace, window.WorkspaceBytesMax),
		controlplane.ValidateLength("namespace", q.Namespace, window.NamespaceBytesMax),
		controlplane.ValidateLength("region", q.Region, usageRegionBytes),
		controlplane.ValidateCount("limit", q.Limit, 1, UsageSeriesMax)); err != nil {
		return 0, err
	}
	if err := q.prepareTimes(now); err != nil {
		return 0, err
	}
	// Truncate counts from the year 1, which begins with a day and an hour of UTC.
	q.From, q.Until = q.From.UTC().Truncate(q.Step), q.Until.UTC().Truncate(q.Step).Add(q.Step)
	steps = int(q.Until.Sub(q.From) / q.Step)
	series := q.Limit
	if q.Namespace != "" {
		series = 1
	}
	if steps*series > UsageValuesMax {
		return 0, fmt.Errorf("%w: %d steps of %d namespaces (at most %d together): take days as steps, or fewer namespaces",
			controlplane.ErrInvalid, steps, series, UsageValuesMax)
	}
	return steps, nil
}

// prepareTimes sets the range and the step.
func (q *UsageQuery) prepareTimes(now time.Time) error {
	for _, field := range []struct {
		name string
		time.Time
	}{{"from_ms", q.From}, {"until_ms", q.Until}} {
		if ms := field.UnixMilli(); !field.IsZero() && (ms < 0 || ms > usageMsMax) {
			return fmt.Errorf("%w: %s is %d (0 to %d, Unix ms)", controlplane.ErrInvalid, field.name, ms, int64(usageMsMax))
		}
	}
	if q.Until.IsZero() {
		q.Until = now
	}
	if q.From.IsZero() {
		q.From = q.Until.Add(-usageDay)
	}
	span := q.Until.Sub(q.From)
	if span < 0 || span > UsageSpanMax {
		return fmt.Errorf("%w: from_ms is %d (%d to %d: until_ms, and at most %v before it)", controlplane.ErrInvalid,
			q.From.UnixMilli(), q.Until.Add(-UsageSpanMax).UnixMilli(), q.Until.UnixMilli(), UsageSpanMax)
	}
	if q.Step == 0 {
		q.Step = time.Hour
		if span > 7*usageDay+time.Hour {
			q.Step = usageDay
		}
	}
	return nil
}

// GetUsage returns the usage of namespaces.
func GetUsage(ctx context.Context, store UsageStore, q UsageQuery) (Usage, error) {
	now, err := store.Now(ctx)
	if err != nil {
		return Usage{}, err
	}
	steps, err := q.prepare(now)
	if err != nil {
		return Usage{}, err
	}
	answer := Usage{Now: now, Step: q.Step}
	reports, cut, err := usageReports(ctx, store, &q, q.From, q.Until)
	if err != nil {
		return Usage{}, err
	}
	known := reports
	if len(known) == 0 {
		if known, _, err = usageReports(ctx, store, &q, q.From.Add(-UsageSpanMax), q.From); err != nil {
			return Usage{}, err
		}
	}
	answer.Times = usageTimes(&q, steps, reports, usageRegions(known), now)
	if q.Namespace != "" {
		answer.Series = []UsageSeries{{UsageOf: heartbeat.UsageOf{Workspace: q.Workspace, Namespace: q.Namespace}}}
	} else if answer.Series, err = topUsage(ctx, store, &q); err != nil {
		return Usage{}, err
	}
	if answer.Truncated = len(answer.Series) > q.Limit; answer.Truncated {
		answer.Series = answer.Series[:q.Limit]
	}
	for i := range answer.Series {
		s := &answer.Series[i]
		hours, err := store.UsageOf(ctx, s.UsageOf, q.From, q.Until, usageRowsMax)
		if err != nil {
			return Usage{}, err
		}
		cut = cut || len(hours) == usageRowsMax
		s.fill(&q, steps, hours)
	}
	answer.Truncated = answer.Truncated || cut
	return answer, nil
}

// usageReports returns the reports of the query's region, and whether there can be more.
func usageReports(ctx context.Context, store UsageStore, q *UsageQuery, from, until time.Time) (reports []UsageHour,
	cut bool, err error) {
	reports, err = store.UsageReported(ctx, from, until, usageRowsMax)
	cut = len(reports) == usageRowsMax
	return slices.DeleteFunc(reports, func(r UsageHour) bool { return q.Region != "" && r.Region != q.Region }), cut, err
}

// usageRegions returns the regions of reports, sorted.
func usageRegions(reports []UsageHour) []string {
	regions := make(map[string]bool)
	for _, r := range reports {
		regions[r.Region] = true
	}
	return slices.Sorted(maps.Keys(regions))
}

func topUsage(ctx context.Context, store UsageStore, q *UsageQuery) ([]UsageSeries, error) {
	names := q.Visible.Names() // so that namespaces of other workspaces take no place among the rows
	if q.Workspace != "" {
		names = []string{q.Workspace}
	}
	top, err := store.UsageTop(ctx, names, q.Region, q.From, q.Until, usageNamespaceMax)
	return slices.DeleteFunc(top, func(s UsageSeries) bool {
		return s.Sum == heartbeat.UsageCost{} || !q.Visible.Has(s.Workspace) && !q.Visible.All()
	}), err
}

// fill sets the costs of a series.
func (s *UsageSeries) fill(q *UsageQuery, steps int, hours []UsageHour) {
	s.Costs, s.Sum = make([]heartbeat.UsageCost, steps), heartbeat.UsageCost{}
	for _, h := range hours {
		at := int(h.At.Sub(q.From) / q.Step)
		if h.At.Before(q.From) || at >= steps || q.Region != "" && q.Region != h.Region {
			continue
		}
		for _, sum := range []*heartbeat.UsageCost{&s.Costs[at], &s.Sum} {
			sum.Accepted, sum.Denied = addUsage(sum.Accepted, h.Accepted), addUsage(sum.Denied, h.Denied)
		}
	}
}

func addUsage(a, b int64) int64 { return min(a, math.MaxInt64-b) + b }

// usageTimes returns the steps, and which of them are known. A region is expected in each hour from its first report
// until its last. If the last is less than a day before the end, the region is expected until the end. The hour that is
// under way is known if the hour before is. If a step has no report and expects none of the regions, all are missing.
func usageTimes(q *UsageQuery, steps int, reports []UsageHour, regions []string, now time.Time) []UsageTime {
	hours := int(q.Until.Sub(q.From) / time.Hour)
	current := int(now.Sub(q.From) / time.Hour)
	reported := make(map[string][]bool)
	for _, r := range reports {
		at := int(r.At.Sub(q.From) / time.Hour)
		if at < 0 || at >= hours {
			continue
		}
		if reported[r.Region] == nil {
			reported[r.Region] = make([]bool, hours)
		}
		reported[r.Region][at] = true
	}
	end := min(hours, current+1) // later hours have not begun
	missing, any := make([]map[string]bool, steps), make([]bool, hours)
	for region, in := range reported {
		if current > 0 && current < hours && in[current-1] {
			in[current] = true
		}
		first, last := slices.Index(in, true), hours-1
		for ; !in[last]; last-- {
		}
		if last >= end-24 {
			last = end - 1
		}
		for h := first; h <= last; h++ {
			if any[h] = any[h] || in[h]; in[h] {
				continue
			}
			step := h * int(time.Hour) / int(q.Step)
			if missing[step] == nil {
				missing[step] = make(map[string]bool)
			}
			missing[step][region] = true
		}
	}
	times := make([]UsageTime, steps)
	perStep := int(q.Step / time.Hour)
	for i := range times {
		times[i] = UsageTime{At: q.From.Add(time.Duration(i) * q.Step), Known: len(missing[i]) == 0}
		for h := i * perStep; h < min((i+1)*perStep, end); h++ {
			times[i].Known = times[i].Known && any[h]
		}
		times[i].Missing = slices.Sorted(maps.Keys(missing[i]))
		switch begun := i*perStep < end; {
		case !begun:
			times[i].Known = false
		case !times[i].Known && len(times[i].Missing) == 0:
			times[i].Missing = regions
		}
	}
	return times
}
