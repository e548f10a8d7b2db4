package api

import (
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

func planQuery(q *controlv1.RolloutQuery) queries.Rail {
	return queries.Rail{
		Name: q.GetName(), Query: q.GetQuery(), Above: q.Above, Below: q.Below, TimesBaseline: q.TimesBaseline,
		Required: q.GetRequired(),
	}
}

func queryRail(q queries.Rail) *controlv1.RolloutQuery {
	return &controlv1.RolloutQuery{
		Name: q.Name, Query: q.Query, Above: q.Above, Below: q.Below, TimesBaseline: q.TimesBaseline, Required: q.Required,
	}
}

// queryValues returns the values of each query before the stage and now.
func queryValues(r rollout.Rollout) (values []*controlv1.RolloutQueryValue) {
	for _, q := range r.Spec.Plan.Guardrails.Queries {
		byRegion := map[string]*controlv1.RolloutQueryValue{}
		row := func(v queries.Value) *controlv1.RolloutQueryValue {
			have := byRegion[v.Region]
			if have == nil {
				have = &controlv1.RolloutQueryValue{Name: q.Name, Region: valid(v.Region), Bound: q.Bound()}
				byRegion[v.Region] = have
				values = append(values, have)
			}
			have.Problem = valid(v.Problem)
			return have
		}
		for _, v := range r.QueriesBefore {
			if v.Name == q.Name {
				row(v).Before = v.Shown()
			}
		}
		for _, v := range r.QueriesNow {
			if v.Name == q.Name {
				row(v).Now = v.Shown()
			}
		}
	}
	return values
}
