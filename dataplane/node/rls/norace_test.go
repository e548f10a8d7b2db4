//go:build !race

package rls

const raced = false
