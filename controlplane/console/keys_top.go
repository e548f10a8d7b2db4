package console

import (
	"net/url"
	"time"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/window"
)

// ranking has the hot or the denied keys. Bars are relative to the first key.
type ranking struct {
	*controlv1.TopKeysResponse
	Problem string
	Keys    []rankedKey
}

// rankedKey is a key with its bar, which is at most 300 wide.
type rankedKey struct {
	*controlv1.TopKey
	At int64
}

// Link returns the address of the key's page.
func (k rankedKey) Link() string {
	return "/console/keys?" + url.Values{"workspace": {k.GetWorkspace()}, "namespace": {k.GetNamespace()},
		"identifier": {k.GetIdentifier()}}.Encode()
}

const (
	keysRanked = 100 // requested from the API
	keysShown  = 10
)

// Shown returns the first keysShown keys.
func (r ranking) Shown() []rankedKey { return r.Keys[:min(len(r.Keys), keysShown)] }

func (c *Console) rank(v *viewer, page keyView, by controlv1.TopBy) ranking {
	found, err := apiclient.Ask(v.ctx, c.backend.TopKeys.TopKeys, &controlv1.TopKeysRequest{Workspace: page.Workspace,
		Namespace: page.Namespace, By: by, Limit: keysRanked})
	if err != nil {
		return ranking{Problem: apiclient.Words(err)}
	}
	r := ranking{TopKeysResponse: found}
	for _, k := range found.GetKeys() {
		r.Keys = append(r.Keys, rankedKey{k, 300 * k.GetCount() / max(1, found.GetKeys()[0].GetCount())})
	}
	return r
}

// seenKey is a key as nodes last reported it, with its window at this moment: two cells, each 300 wide, and the window
// that slides over them.
type seenKey struct {
	*controlv1.TopKey
	Now     int64 // end of the window, which begins 300 before it
	Weight  float64
	Ends    time.Duration // until the current cell ends
	Parts   []part
	LimitAt int64 // on a scale 600 wide; 0: unknown
}

// part is a region's part of the count, on the same scale.
type part struct {
	Region   string
	Count    int64
	X, Width int64
	Class    int // of its colour
}

// Begins returns the position where the window begins.
func (s seenKey) Begins() int64 { return s.Now - 300 }

func see(k *controlv1.TopKey, nowMs int64) seenKey {
	s := seenKey{TopKey: k, Now: 300}
	if d := k.GetDurationMs(); d > 0 {
		passed := nowMs - window.Sequence(nowMs, d)*d
		s.Now, s.Weight, s.Ends = 300+300*passed/d, window.Weight(nowMs, d), time.Duration(d-passed)*time.Millisecond
	}
	most := max(1, k.GetCount(), k.GetLimit())
	if k.Limit != nil {
		s.LimitAt = 600 * k.GetLimit() / most
	}
	x := int64(0)
	for i, r := range k.GetRegions() {
		wide := 600 * r.GetCount() / most
		s.Parts = append(s.Parts, part{r.GetRegion(), r.GetCount(), x, min(wide, 600-x), i % 4})
		x += wide
	}
	return s
}
