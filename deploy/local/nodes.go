package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
)

// relayWait is how long to wait for a region's relay before its nodes are printed without it. A lease that its holder
// did not release ends sooner.
const relayWait = 10 * time.Second

// takeOverWait is how long to wait until another node relays the region of a node that has ended.
const takeOverWait = 5 * time.Second

// relayOf returns the node that relays a region, or nil if none does within the given time.
func relayOf(ctx context.Context, s *stack.Stack, region string, within time.Duration) *stack.Node {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if n := s.Relay(ctx, region); n != nil {
			return n
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// relaysOf returns the nodes that relay the regions, by region.
func relaysOf(ctx context.Context, s *stack.Stack) map[string]*stack.Node {
	relays := make(map[string]*stack.Node)
	for _, n := range s.Nodes {
		if _, ok := relays[n.Region]; !ok {
			relays[n.Region] = relayOf(ctx, s, n.Region, relayWait)
		}
	}
	return relays
}

// role returns a node's part in its region's relay.
func role(n, relay *stack.Node, hasMySQL bool) string {
	switch {
	case n == relay:
		return "relays " + n.Region
	case hasMySQL:
		return "relays " + n.Region + " next"
	default:
		return "no MySQL"
	}
}

// keptNode is a node that is restarted when it ends.
type keptNode struct {
	*stack.Node
	stack *stack.Stack
}

func (n keptNode) ended(ctx context.Context) string {
	return left(n.Node, relayOf(ctx, n.stack, n.Region, takeOverWait))
}

// left returns the line that is printed when a node has ended. relay is nil if no node relays its region.
func left(ended, relay *stack.Node) string {
	if relay == nil {
		return fmt.Sprintf("node %s has ended. No node relays %s: other regions do not receive its counts.",
			ended.ID, ended.Region)
	}
	return fmt.Sprintf("node %s has ended. node %s relays %s.", ended.ID, relay.ID, relay.Region)
}
