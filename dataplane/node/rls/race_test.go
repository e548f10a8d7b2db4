//go:build race

package rls

// raced: then sync.Pool forgets some of what it is given.
const raced = true
