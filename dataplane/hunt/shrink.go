package main

import "github.com/weirhq/weir/dataplane/sim/hunt"

// shrink leaves out as many of n steps as it can while fails holds for the steps left out. It tries halves, quarters, …
// and single steps, like delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
// 2002).
func shrink(n int, fails func(left hunt.Set) bool) hunt.Set {
	left := make(hunt.Set)
	kept := make([]int, n)
	for i := range kept {
		kept[i] = i
	}
	for size := (n + 1) / 2; size >= 1; {
		smaller := false
		for from := 0; from < len(kept); {
			to := min(from+size, len(kept))
			if try := without(left, kept[from:to]); fails(try) {
				left, smaller = try, true
				kept = append(kept[:from:from], kept[to:]...)
			} else {
				from = to
			}
		}
		if size == 1 && !smaller {
			break
		}
		size = max(1, size/2)
	}
	return left
}

func without(left hunt.Set, more []int) hunt.Set {
	all := make(hunt.Set, len(left)+len(more))
	for i := range left {
		all[i] = true
	}
	for _, i := range more {
		all[i] = true
	}
	return all
}
