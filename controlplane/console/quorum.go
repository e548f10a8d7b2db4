package console

import (
	"fmt"
	"net/url"
	"strings"
)

// quorumForm are the fields of a form that say how many people approve, and for how long that counts. Empty: the API's
// defaults, one and a day.
type quorumForm struct{ Approvers, TTL string }

// firstQuorum is what a form has at first.
var firstQuorum = quorumForm{Approvers: "1", TTL: "24h"}

func readQuorum(values url.Values) quorumForm {
	return quorumForm{Approvers: strings.TrimSpace(values.Get("approvers")),
		TTL: strings.TrimSpace(values.Get("approval_ttl"))}
}

// request is what the form asks for; nil is the API's default. Errors name the field; bounds are the API's to say.
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
