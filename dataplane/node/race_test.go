//go:build race

package node

// raced: then sync.Pool forgets some of what it is given.
const raced = true
