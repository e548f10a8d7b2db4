//go:build !race

package dataplane_test

const raced = false
