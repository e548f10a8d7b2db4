package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// prover shows that a hunt finds the bugs it exists for: it hunts for each planted one.
type prover struct {
	module string
	out    io.Writer
	from   uint64
	seeds  uint64 // at most, for each

	mu     sync.Mutex // of what follows, and of out
	missed int
}

// finding is what a hunt for one planted bug came to.
type finding struct {
	broken  string // the invariant; empty: none
	seeds   uint64
	virtual time.Duration
}

var errMissed = errors.New("planted bugs were not found")

// run hunts for each bug, some at once, and returns errMissed if one was not found.
func (p *prover) run(ctx context.Context, bugs []planted, procs int) error {
	next := make(chan *planted)
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
	if p.missed > 0 {
		return fmt.Errorf("%d of %d %w", p.missed, len(bugs), errMissed)
	}
	fmt.Fprintf(p.out, "%d planted bugs found\n", len(bugs))
	return nil
}

// say hunts for a bug, and prints a line about it.
func (p *prover) say(ctx context.Context, bug *planted) {
	f, err := p.hunt(ctx, bug)
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && f.broken != "" {
		fmt.Fprintf(p.out, "%-40s breaks %-5s %4d seeds, %5.2f virtual hours\n",
			bug.name, f.broken, f.seeds, f.virtual.Hours())
		return
	}
	p.missed++
	if err != nil {
		fmt.Fprintf(p.out, "%-40s %v\n", bug.name, err)
		return
	}
	fmt.Fprintf(p.out, "%-40s NOT FOUND    %4d seeds, %5.2f virtual hours\n", bug.name, f.seeds, f.virtual.Hours())
}

// hunt plays seeds with a bug until one breaks an invariant, or does not end.
func (p *prover) hunt(ctx context.Context, bug *planted) (f finding, err error) {
	m, err := newMachine(ctx, p.module, bug)
	if err != nil {
		return f, err
	}
	defer m.close()
	for f.seeds < p.seeds && f.broken == "" && ctx.Err() == nil {
		result, err := m.play(ctx, p.from+f.seeds, nil)
		f.seeds++
		f.virtual += result.Virtual
		switch {
		case errors.Is(err, errDied):
			f.broken = "ends" // a panic, or a goroutine that is left
		case err != nil:
			return f, err
		case len(result.Violations) > 0:
			f.broken = result.Violations[0].Invariant
		}
	}
	return f, nil
}
