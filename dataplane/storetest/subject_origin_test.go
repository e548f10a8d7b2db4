package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// originSubject is the simplest Origin that keeps the contract, but for the one
// fault that it is given.
type originSubject struct {
	fault string

	mu      sync.Mutex
	totals  map[string]int64
	answers []int64
	asked   int // times that ShardOf was called
}

func (o *originSubject) Shards() int {
	if o.fault == "no shards" {
		return 0
	}
	return 3
}

func (o *originSubject) ShardOf(key *window.Key) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	switch n := len(key.Identifier) % 3; o.fault {
	case "a shard out of range":
		return n + 1
	case "shards change":
		return (n + o.asked/100) % 3
	case "shards by the address of the key":
		return int(uintptr(unsafe.Pointer(key)) / unsafe.Sizeof(*key) % 3)
	default:
		return n
	}
}

func (o *originSubject) ended(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil || o.fault == "never looks at ctx":
		return nil
	case o.fault == "hides why ctx ended":
		return errors.New("went wrong")
	case o.fault == "a ctx that has ended is a lost reply":
		return fmt.Errorf("%w: %w", store.ErrMaybeApplied, err)
	default:
		return err
	}
}

func (o *originSubject) Read(ctx context.Context, cells []window.Cell) ([]int64, error) {
	if err := o.ended(ctx); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	totals := make([]int64, len(cells))
	if o.fault == "answers again with what it answered before" && len(o.answers) == len(cells) {
		return o.answers, nil
	}
	o.answers = totals
	for i, c := range cells {
		total, ok := o.totals[identity(o.fault, c)]
		switch {
		case !ok && o.fault == "a read fails where nobody has added":
			return nil, errors.New("nil")
		case o.fault == "a read counts":
			o.totals[identity(o.fault, c)] = total + 1
		case i >= 1000 && o.fault == "reads 1000 cells at most":
			return totals[:1000], nil
		}
		totals[i] = total
	}
	if o.fault == "reads in an order of its own" {
		slices.Sort(totals)
	}
	return totals, nil
}

func (o *originSubject) Add(ctx context.Context, adds []store.Add) []store.Added {
	if err := o.ended(ctx); err != nil {
		return slices.Repeat([]store.Added{{Err: err}}, len(adds))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	added := make([]store.Added, len(adds))
	for i, a := range adds {
		if i >= 1000 && o.fault == "adds 1000 cells at most" {
			return added[:1000]
		}
		id := identity(o.fault, a.Cell)
		before := o.totals[id]
		after := before + a.Cost
		if a.Cost <= 0 && o.fault != "takes costs that are not positive" || a.Cost > math.MaxInt64-before && o.fault != "totals wrap" {
			added[i].Err = errors.New("cannot add")
			if o.fault == "one failure fails all" {
				return slices.Repeat(added[i:i+1], len(adds))
			}
			continue
		}
		switch o.fault {
		case "overwrites":
			after = a.Cost
		case "counts in floats":
			after = int64(float64(before) + float64(a.Cost))
		case "loses updates":
			o.mu.Unlock()
			runtime.Gosched()
			o.mu.Lock()
		}
		o.put(id, a.Cell, after)
		added[i].Total = after
		if o.fault == "answers with the total before" {
			added[i].Total = before
		}
	}
	if o.fault == "answers with the last total of all" {
		for i, a := range adds {
			if added[i].Err == nil {
				added[i].Total = o.totals[identity(o.fault, a.Cell)]
			}
		}
	}
	return added
}

func (o *originSubject) Claim(ctx context.Context, claims []store.Claim) []store.Claimed {
	if err := o.ended(ctx); err != nil {
		return slices.Repeat([]store.Claimed{{Err: err}}, len(claims))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	claimed := make([]store.Claimed, len(claims))
	found := make(map[string]int64)
	for i, c := range claims {
		if i >= 1000 && o.fault == "claims 1000 cells at most" {
			return claimed[:1000]
		}
		id := identity(o.fault, c.Cell)
		before := o.totals[id]
		if c.Cost <= 0 && o.fault != "claims what is not positive" {
			claimed[i].Err = errors.New("cannot claim")
			continue
		}
		if first, ok := found[id]; ok && o.fault == "claims are decided together" {
			before = first
		}
		found[id] = before
		fits := c.Cost <= c.AtMost && before <= c.AtMost-c.Cost
		switch o.fault {
		case "claims past AtMost":
			fits = before < c.AtMost
		case "claims less than AtMost":
			fits = c.Cost < c.AtMost && before < c.AtMost-c.Cost
		case "claims in floats":
			fits = float64(before)+float64(c.Cost) <= float64(c.AtMost)
		case "claims wrap":
			fits = before+c.Cost <= c.AtMost
		case "claims read and then write":
			o.mu.Unlock()
			runtime.Gosched()
			o.mu.Lock()
			if fits {
				before = o.totals[id] // the increment is atomic, the condition is not
			}
		case "a claim overwrites what is added meanwhile":
			o.mu.Unlock()
			runtime.Gosched()
			o.mu.Lock()
		}
		claimed[i] = store.Claimed{Total: before, Added: fits}
		switch {
		case fits:
			o.put(id, c.Cell, before+c.Cost)
			claimed[i].Total = before + c.Cost
		case o.fault == "a claim without room answers with 0":
			claimed[i].Total = 0
		case o.fault == "a claim without room is an error":
			claimed[i] = store.Claimed{Err: errors.New("no room")}
		case o.fault == "a claim without room leaves its cost":
			o.put(id, c.Cell, before+c.Cost)
		}
	}
	return claimed
}

func (o *originSubject) Raise(ctx context.Context, totals []store.Add) error {
	if err := o.ended(ctx); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range totals {
		id := identity(o.fault, t.Cell)
		stored, ok := o.totals[id]
		after := max(stored, t.Cost)
		switch o.fault {
		case "raises only what is there":
			if !ok {
				continue
			}
		case "raising adds":
			after = stored + t.Cost
		case "raising lowers":
			after = t.Cost
		case "raising compares floats":
			if float64(t.Cost) <= float64(stored) {
				after = stored
			}
		case "raising compares text":
			after = stored
			if strconv.FormatInt(t.Cost, 10) > strconv.FormatInt(stored, 10) {
				after = t.Cost
			}
		case "raising reads and then writes":
			o.mu.Unlock()
			runtime.Gosched()
			o.mu.Lock()
		}
		o.put(id, t.Cell, after)
	}
	return nil
}

func (o *originSubject) put(id string, c window.Cell, total int64) {
	expiresMs := c.ExpiresAtMs()
	if o.fault == "forgets the previous cell" {
		expiresMs -= c.DurationMs()
	}
	if expiresMs > time.Now().UnixMilli() || o.fault == "never forgets" {
		o.totals[id] = total
	}
}
