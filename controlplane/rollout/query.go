package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/shared/tuning"
)

const (
	queryRegionsMax = 50 // a query with queries.RegionPlaceholder is sent for at most this many regions
	queryProblemMax = 200
)

// queries returns the values of all rails for the regions. Failed queries, and rails without a region to query, are
// values with a Problem and no error, because an outage of Prometheus must not stop the rollout.
func (s Steps) queries(regions []string, rails []queries.Rail) ([]queries.Value, error) {
	if len(rails) == 0 {
		return nil, nil
	}
	return do(s, "ask Prometheus", func(ctx context.Context) (values []queries.Value, err error) {
		for _, q := range rails {
			switch {
			case !strings.Contains(q.Query, queries.RegionPlaceholder):
				values = append(values, s.work.query(ctx, q, ""))
			case len(regions) == 0:
				values = append(values, queries.Value{Name: q.Name, Problem: "no region has a node"})
			default:
				values = append(values, s.work.queryRegions(ctx, q, regions)...)
			}
		}
		return values, nil
	})
}

func (w *Work) queryRegions(ctx context.Context, q queries.Rail,
	regions []string) (values []queries.Value) {
	for i, region := range regions {
		if i < queryRegionsMax {
			values = append(values, w.query(ctx, q, region))
		} else {
			values = append(values, queries.Value{Name: q.Name, Region: region,
				Problem: fmt.Sprintf("a query is sent for at most %d regions", queryRegionsMax)})
		}
	}
	return values
}

func (w *Work) query(ctx context.Context, q queries.Rail, region string) queries.Value {
	v := queries.Value{Name: q.Name, Region: region}
	if w.prometheus == nil {
		v.Problem = "weir-control has no --prometheus-url"
		return v
	}
	values, err := w.prometheus.Query(ctx, q.Of(region))
	if err != nil {
		v.Problem = controlplane.Cut(err.Error(), queryProblemMax)
		return v
	}
	switch v.Value, v.NaN = q.Worst(values); {
	case v.NaN:
		v.Problem = "an element is NaN"
	case v.Value == nil:
		v.Problem = "the query has no result"
	}
	return v
}

// checkSpec returns the first problem of a spec with this control plane: a setting that does not fit its time within
// which a node is live, or a query that its Prometheus rejects. It returns "" if Prometheus does not answer, because a
// stage detects that later.
func (s Steps) checkSpec(spec Spec) (problem string, err error) {
	return do(s, "check the plan", func(ctx context.Context) (string, error) { return s.work.checkSpec(ctx, spec) })
}

func (w *Work) checkSpec(ctx context.Context, spec Spec) (problem string, err error) {
	if spec.Limits == nil {
		set, err := tuning.Parse([]byte(spec.Tuning))
		if err != nil {
			return "", fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
		}
		if unfit := set.CheckTimes(tuning.Times{LiveWithin: w.liveWithin}); unfit != nil {
			return unfit.Error(), nil //nolint:nilerr // that it does not fit is the answer
		}
	}
	rails := spec.Plan.Guardrails.Queries
	if len(rails) == 0 {
		return "", nil
	}
	if w.prometheus == nil {
		return "the plan has queries, and weir-control has no --prometheus-url", nil
	}
	for _, q := range rails {
		if _, err := w.prometheus.Query(ctx, q.Of("region")); errors.Is(err, controlplane.ErrInvalid) {
			return fmt.Sprintf("query of %s: %s", q.Name, controlplane.Cut(err.Error(), 2*queryProblemMax)), nil
		}
	}
	return "", nil
}

// WithPrometheus returns a copy of the work that sends queries to a Prometheus.
func (w *Work) WithPrometheus(p queries.Prometheus) *Work {
	with := *w
	with.prometheus = p
	return &with
}
