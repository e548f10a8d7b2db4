package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/sim/hunt"
)

// hunter plays one seed after the other, some at once.
type hunter struct {
	machine *machine
	out     io.Writer

	from, seeds uint64        // seeds == 0: until decides
	until       time.Duration // 0: seeds decide
	twice, keep bool

	mu    sync.Mutex // of what follows, and of out
	began time.Time
	taken uint64
	tally tally
}

// tally is what a hunt did.
type tally struct {
	seeds, decisions int64
	faults           map[hunt.Verb]int
	virtual          time.Duration
	failed           int
}

// add counts a history.
func (t *tally) add(r *hunt.Result) {
	if t.faults == nil {
		t.faults = make(map[hunt.Verb]int)
	}
	t.seeds++
	t.decisions += r.Decisions
	t.virtual += r.Virtual
	for kind, n := range r.Faults {
		t.faults[kind] += n
	}
}

// kinds is how many faults there were, and of which kinds, the most frequent first.
func (t *tally) kinds() (sum int, list string) {
	var parts []string
	byCount := func(a, b hunt.Verb) int {
		return cmp.Or(t.faults[b]-t.faults[a], strings.Compare(string(a), string(b)))
	}
	for _, kind := range slices.SortedFunc(maps.Keys(t.faults), byCount) {
		sum += t.faults[kind]
		parts = append(parts, fmt.Sprint(t.faults[kind], " ", kind))
	}
	return sum, strings.Join(parts, ", ")
}

// run hunts, and returns errBroken if a seed failed.
func (h *hunter) run(ctx context.Context, procs int) error {
	h.began = time.Now()
	var workers sync.WaitGroup
	for range procs {
		workers.Go(func() {
			for seed, ok := h.take(ctx); ok; seed, ok = h.take(ctx) {
				h.try(ctx, seed)
			}
		})
	}
	workers.Wait()
	faults, kinds := h.tally.kinds()
	fmt.Fprintf(h.out, "seeds %d to %d: %d played, %d decisions, %d faults, %.1f virtual hours in %v, %d failed\n",
		h.from, h.from+max(h.taken, 1)-1, h.tally.seeds, h.tally.decisions, faults, h.tally.virtual.Hours(),
		time.Since(h.began).Round(time.Second), h.tally.failed)
	if faults > 0 {
		fmt.Fprintln(h.out, "faults:", kinds)
	}
	if h.tally.failed > 0 {
		return errBroken
	}
	return ctx.Err()
}

// take is the next seed to play.
func (h *hunter) take(ctx context.Context) (seed uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case ctx.Err() != nil, h.tally.failed > 0 && !h.keep:
		return 0, false
	case h.seeds > 0 && h.taken == h.seeds, h.until > 0 && time.Since(h.began) > h.until:
		return 0, false
	}
	h.taken++
	return h.from + h.taken - 1, true
}

// try plays a seed.
func (h *hunter) try(ctx context.Context, seed uint64) {
	result, problem := h.play(ctx, seed)
	h.mu.Lock()
	h.tally.add(&result)
	h.mu.Unlock()
	if problem == "" && len(result.Violations) > 0 {
		problem = h.explain(ctx, result)
	}
	if problem == "" || ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tally.failed++
	fmt.Fprintln(h.out, problem)
}

// play says what is wrong with a seed's execution itself.
func (h *hunter) play(ctx context.Context, seed uint64) (result hunt.Result, problem string) {
	result, err := h.machine.play(ctx, seed, nil)
	if err != nil {
		return result, fmt.Sprintf("seed %d: %v", seed, err)
	}
	if !h.twice {
		return result, ""
	}
	again, err := h.machine.play(ctx, seed, nil)
	if err != nil || again.Hash != result.Hash {
		return result, fmt.Sprintf("seed %d: two executions: hash %s, and then %s (%v)", seed, result.Hash, again.Hash, err)
	}
	return result, ""
}

// explain shrinks a failing seed, and says how to play it again.
func (h *hunter) explain(ctx context.Context, result hunt.Result) string {
	first := result.Violations[0]
	small := result
	left := shrink(result.Steps, func(left hunt.Set) bool {
		r, err := h.machine.play(ctx, result.Seed, left)
		fails := err == nil && len(r.Violations) > 0 && r.Violations[0].Invariant == first.Invariant
		if fails {
			small = r
		}
		return fails
	})
	return fmt.Sprintf("seed %d breaks %s: %s\n%d of %d steps are enough:\n\n  weir-hunt --seed %d --without %s\n\n%s\n",
		result.Seed, first.Invariant, first.What, small.Steps, result.Steps,
		result.Seed, left, strings.Join(small.Lines, "\n"))
}
