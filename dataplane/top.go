package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/census"
)

// Package census ranks the hot and the denied keys. Allowed requests do no work for it; for denials see denials.go.

// TopBy selects the ranking of keys.
type TopBy uint8

const (
	// TopHot ranks by the cost in a key's sliding window, of all regions, as far as this node has read it.
	TopHot TopBy = iota
	// TopDenied ranks by the requests of the last minute or two that this node has denied, or that only shadow mode let
	// pass.
	TopDenied
)

// TopKeysMax is the highest number of keys in an answer of TopKeys.
const TopKeysMax = 100

// TopQuery selects the keys that TopKeys returns.
type TopQuery struct {
	Workspace string // "" for all
	Namespace string // "" for all
	By        TopBy
	Limit     int // 1 to TopKeysMax

	// Visible reports whether the answer may hold keys of a workspace; nil allows all. It is called for each key that is
	// examined, so it must be fast.
	Visible func(workspace string) bool
}

// TopKeys is the answer to a TopQuery.
type TopKeys struct {
	At    time.Time
	Since time.Time // of TopDenied: earlier denials are not included
	Keys  []TopKey  // largest Count first
}

// TopKey is a key of a TopKeys.
type TopKey struct {
	Workspace, Namespace, Identifier string
	Duration                         time.Duration

	// Limit is the limit of the override in force, if there is an override. Otherwise it depends on the ranking:
	//
	//   - For a hot key, it is the lowest limit that its cost was counted against, rounded down by less than a
	//     thousandth. It is -1 on a node that shares its counts with no other node, which keeps no such limit.
	//   - For a denied key, it is the limit of its last sample.
	Limit int64

	Count    int64 // of a hot key: its cost, rounded down; of a denied key: the least number of denied requests
	Regional int64 // of a hot key: the part of Count from this region
	More     int64 // of a denied key: by how much Count may be too low, apart from the error of sampling
}

func topKeysOf(found *census.Answer) TopKeys {
	top := TopKeys{At: found.At, Since: found.Since}
	for i := range found.Keys {
		top.Keys = append(top.Keys, TopKey(found.Keys[i]))
	}
	return top
}
