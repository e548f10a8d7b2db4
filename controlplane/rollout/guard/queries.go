package guard

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// noteQueries updates how long values have been beyond their bounds, at a look gapMs after the previous look. last are
// the values of the previous look, and before the values before the stage.
func (g bounds) noteQueries(before, last, now []queries.Value, gapMs int64, borne time.Duration) {
	for _, q := range g.Queries {
		for i := range now {
			is := &now[i]
			if is.Name != q.Name {
				continue
			}
			if is.Over = queries.FindValue(last, *is).Over; is.Value != nil {
				is.Over.See(q.Beyond(queries.FindValue(before, *is), *is) != "", gapMs, borne)
			}
		}
	}
}

// breachOfQueries returns the description of a broken rail, or "".
func (g bounds) breachOfQueries(before, now []queries.Value, borne time.Duration) string {
	for _, q := range g.Queries {
		for _, is := range now {
			if is.Name == q.Name && is.Value != nil && is.Over.Reaches(borne) {
				return q.Beyond(queries.FindValue(before, is), is)
			}
		}
	}
	return ""
}

// queryBeyond names a value that exceeds its bound, but not yet for long enough to break the rail; empty: there is
// none.
func (g bounds) queryBeyond(now []queries.Value, borne time.Duration) string {
	for _, q := range g.Queries {
		for _, is := range now {
			if is.Name == q.Name && is.Over > 0 {
				return fmt.Sprintf("guardrail %s is beyond its bound for %s, and is broken after %s", q.Name,
					controlplane.Seconds(is.Over.Time()), borne)
			}
		}
	}
	return ""
}

// Blind names a query that has a NaN element, or a required rail without a value; empty: there is none.
func Blind(g plan.Guardrails, values []queries.Value) string {
	for _, q := range g.Queries {
		for _, v := range values {
			if v.Name == q.Name && (v.NaN || q.Required && v.Value == nil) {
				return fmt.Sprintf("guardrail %s has no value: %s", q.Name, v.Problem)
			}
		}
	}
	return ""
}
