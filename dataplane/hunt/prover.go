package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/planted"
)

// prover shows that a search finds the bugs for which it exists. It hunts for each planted bug, and explores for bugs
// of the control plane.
type prover struct {
	module string
	out    io.Writer
	from   uint64
	seeds  uint64        // at most, for each
	within time.Duration // that a history has to end in; 0 is withinDefault

	mu     sync.Mutex // guards the fields below, and out
	missed int
}

// finding is the outcome of a search for a planted bug.
type finding struct {
	broken  string // the invariant, or rule; empty: none
	seeds   uint64
	virtual time.Duration
	states  int // that were explored; then there are no seeds
	took    time.Duration
}

// effort describes how long the search took.
func (f *finding) effort() string {
	if f.states > 0 {
		return fmt.Sprintf("%4d states, %4.0f s", f.states, f.took.Seconds())
	}
	return fmt.Sprintf("%4d seeds, %5.2f virtual hours, %4.0f s", f.seeds, f.virtual.Hours(), f.took.Seconds())
}

var errMissed = errors.New("planted bugs were not found")

// run hunts for each bug, several at once, and returns errMissed if any of them was not found.
func (p *prover) run(ctx context.Context, bugs []planted.Bug, procs int) error {
	began := time.Now()
	next := make(chan *planted.Bug)
	var workers sync.WaitGroup
	for range procs {
		workers.Go(func() {
			for bug := range next {
				p.say(ctx, bug)
			}
		})
	}
	for i := range bugs {
		next <- &bugs[i]
	}
	close(next)
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%d of %d planted bugs found in %v, %d at once\n", len(bugs)-p.missed, len(bugs),
		time.Since(began).Round(time.Second), procs)
	if p.missed > 0 {
		return fmt.Errorf("%d of %d %w", p.missed, len(bugs), errMissed)
	}
	return nil
}

// say searches for a bug, and prints a line about it.
func (p *prover) say(ctx context.Context, bug *planted.Bug) {
	search := p.hunt
	if isOfControl(bug) {
		search = p.explore
	}
	began := time.Now()
	f, err := search(ctx, bug)
	f.took = time.Since(began)
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && f.broken != "" {
		fmt.Fprintf(p.out, "%-40s breaks %-5s %s\n", bug.Name, f.broken, f.effort())
		return
	}
	p.missed++
	if err != nil {
		fmt.Fprintf(p.out, "%-40s %v\n", bug.Name, err)
		return
	}
	fmt.Fprintf(p.out, "%-40s NOT FOUND    %s\n", bug.Name, f.effort())
}

// hunt plays seeds with a bug until a seed breaks an invariant, or does not end.
func (p *prover) hunt(ctx context.Context, bug *planted.Bug) (f finding, err error) {
	m, err := newMachine(ctx, p.module, bug.Overlay)
	if err != nil {
		return f, err
	}
	defer m.close()
	m.within = p.within
	for f.seeds < p.seeds && f.broken == "" && ctx.Err() == nil {
		result, err := m.play(ctx, p.from+f.seeds, nil)
		f.seeds++
		f.virtual += result.Virtual
		switch {
		case errors.Is(err, errDied):
			f.broken = "ends" // a panic, a goroutine that is left, or a history without an end
		case err != nil:
			return f, err
		case len(result.Violations) > 0:
			f.broken = result.Violations[0].Invariant
		}
	}
	return f, nil
}
