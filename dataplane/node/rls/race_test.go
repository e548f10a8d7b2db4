//go:build race

package rls

// raced reports that the race detector is on. sync.Pool then drops some of its items.
const raced = true
