// Package ratelimit pins envoyproxy/ratelimit, whose server bench-node builds and starts beside weir-node. Nothing
// of it is imported: its requirements are years older than ours.
package ratelimit
