// Package usage adds up the cost that a node accepts and denies, by namespace, for the reports in its heartbeats.
// A request for a key that the node knows does no work for it: cost is added when the origin has confirmed it, when
// it is given up, or when a denial is sampled. A node without an origin walks its table instead.
package usage
