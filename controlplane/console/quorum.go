package console

import (
	"fmt"
	"net/url"
	"strings"
)

// quorumForm has the number of people who must approve, and the time for which an approval counts. An empty field means
// the API's default: one person, and a day.
type quorumForm struct{ Approvers, TTL string }

// firstQuorum has the values of a new form.
var firstQuorum = quorumForm{Approvers: "1", TTL: "24h"}

func readQuorum(values url.Values) quorumForm {
	return quorumForm{Approvers: strings.TrimSpace(values.Get("approvers")),
		TTL: strings.TrimSpace(values.Get("approval_ttl"))}
}

// request returns the API's values; nil means the API's default. Errors name the field. The API checks the bounds.
func (q quorumForm) request() (approvers *int32, ttlMs *int64, err error) {
	if q.Approvers != "" {
		n, err := typedInt32(q.Approvers)
		if err != nil {
			return nil, nil, fmt.Errorf("people who approve: %q, want a whole number from 1 to 10", q.Approvers)
		}
		approvers = &n
	}
	if q.TTL != "" {
		ms, err := typedMs(q.TTL)
		if err != nil {
			return nil, nil, fmt.Errorf("an approval counts for %q, want something like 8h or 90m", q.TTL)
		}
		ttlMs = &ms
	}
	return approvers, ttlMs, nil
}
