package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/sim/hunt"
)

// hunter plays one seed after the other, several at once.
type hunter struct {
	machine *machine
	out     io.Writer

	from, seeds uint64        // seeds == 0: until decides
	until       time.Duration // 0: seeds decide
	twice, keep bool

	mu    sync.Mutex // guards the fields below, and out
	began time.Time
	taken uint64
	tally tally
}

// tally counts the work of a hunt.
type tally struct {
	seeds, decisions int64
	faults           map[hunt.Verb]int
	virtual          time.Duration
	failed           int
	hashes           map[uint64]string // by seed
}

// add counts a history.
func (t *tally) add(r *hunt.Result) {
	if t.faults == nil {
		t.faults, t.hashes = make(map[hunt.Verb]int), make(map[uint64]string)
	}
	t.hashes[r.Seed] = r.Hash
	t.seeds++
	t.decisions += r.Decisions
	t.virtual += r.Virtual
	for kind, n := range r.Faults {
		t.faults[kind] += n
	}
}

// hashList returns a line for each seed that was played: the seed and its hash, in order of seeds.
func (t *tally) hashList() []byte {
	var b []byte
	for _, seed := range slices.Sorted(maps.Keys(t.hashes)) {
		b = fmt.Appendf(b, "%d %s\n", seed, t.hashes[seed])
	}
	return b
}

// kinds returns how many faults there were, and of which kinds, the most frequent first.
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

// take returns the next seed to play.
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
	result, err := h.play(ctx, seed)
	h.mu.Lock()
	h.tally.add(&result)
	h.mu.Unlock()
	if ctx.Err() != nil || err == nil && len(result.Violations) == 0 {
		return
	}
	var died *death
	problem := fmt.Sprintf("seed %d: %v", seed, err)
	switch {
	case errors.As(err, &died):
		problem = h.explainDeath(ctx, seed, died)
	case err == nil:
		problem = h.explain(ctx, result)
	}
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tally.failed++
	fmt.Fprintln(h.out, problem)
}

// play plays a seed once, or twice: then two executions that differ are an error.
func (h *hunter) play(ctx context.Context, seed uint64) (hunt.Result, error) {
	result, err := h.machine.play(ctx, seed, nil)
	if err != nil || !h.twice {
		return result, err
	}
	again, err := h.machine.play(ctx, seed, nil)
	if err == nil && again.Hash != result.Hash {
		err = fmt.Errorf("two executions: hash %s, and then %s", result.Hash, again.Hash)
	}
	return result, err
}

// explain shrinks a seed that breaks an invariant, and describes how to play it again.
func (h *hunter) explain(ctx context.Context, result hunt.Result) string {
	first := result.Violations[0]
	small := result
	left := h.smallest(ctx, result.Seed, result.Steps, func(r hunt.Result, err error) bool {
		fails := err == nil && len(r.Violations) > 0 && r.Violations[0].Invariant == first.Invariant
		if fails {
			small = r
		}
		return fails
	})
	return fmt.Sprintf("seed %d breaks %s: %s\n%d of %d steps are enough:\n\n  %s\n\n%s\n",
		result.Seed, first.Invariant, first.What, small.Steps, result.Steps,
		replay(result.Seed, left), strings.Join(small.Lines, "\n"))
}

// explainDeath shrinks a seed whose history has no end, and lists its steps, because its record is lost.
func (h *hunter) explainDeath(ctx context.Context, seed uint64, died *death) string {
	plan := hunt.Draw(seed)
	left := h.smallest(ctx, seed, len(plan.Steps), func(_ hunt.Result, err error) bool {
		var again *death
		return errors.As(err, &again) && again.kind == died.kind
	})
	small := plan.Without(left).Steps
	lines := make([]string, len(small))
	for i, step := range small {
		lines[i] = step.String()
	}
	return fmt.Sprintf("seed %d: %v\n%d of %d steps are enough:\n\n  %s\n\n%s\n",
		seed, died, len(small), len(plan.Steps), replay(seed, left), strings.Join(lines, "\n"))
}

// replay returns the command that plays a seed again.
func replay(seed uint64, left hunt.Set) string {
	if len(left) == 0 {
		return fmt.Sprintf("weir-hunt --seed %d", seed)
	}
	return fmt.Sprintf("weir-hunt --seed %d --without %s", seed, left)
}

// shrinkMax bounds the time for shrinking, as a multiple of the time for a history. Each try of a history that hangs
// takes all of its time.
const shrinkMax = 20

// smallest leaves out as many steps of a seed as it can, in shrinkMax times the time of a history.
func (h *hunter) smallest(ctx context.Context, seed uint64, steps int, fails func(hunt.Result, error) bool) hunt.Set {
	ctx, cancel := context.WithTimeout(ctx, shrinkMax*h.machine.bound())
	defer cancel()
	return shrink(steps, func(left hunt.Set) bool {
		return ctx.Err() == nil && fails(h.machine.play(ctx, seed, left))
	})
}
