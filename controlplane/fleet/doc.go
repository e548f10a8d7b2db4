// Package fleet lists the nodes that send heartbeats, and derives from them looks at regions, rates, relays and how
// late one region reads another.
package fleet
