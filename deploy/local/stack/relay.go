package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// leaseHeld is the sample of a node's metrics while it holds the lease of its region's relay. A stack's Redis has a
// single shard.
const leaseHeld = `weir_relay_lease_held{shard="0"} 1`

// Relay returns the node that relays a region, nil while none does. Nodes that do not answer are left out.
func (s *Stack) Relay(ctx context.Context, region string) *Node {
	for _, n := range s.Nodes {
		if n.Region != region || !s.HasMySQL(n.ID) {
			continue
		}
		if metrics, err := n.Metrics(ctx); err == nil && strings.Contains(metrics, "\n"+leaseHeld+"\n") {
			return n
		}
	}
	return nil
}

// Metrics returns the node's metrics, in Prometheus' text format.
func (n *Node) Metrics(ctx context.Context) (text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.AdminURL()+"/metrics", nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("metrics of %s: %s", n.ID, response.Status)
	}
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
