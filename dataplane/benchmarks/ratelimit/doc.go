// Package ratelimit pins envoyproxy/ratelimit, whose server bench-node builds and starts next to weir-node. Nothing of
// it is imported, because its requirements are years older than ours.
package ratelimit
