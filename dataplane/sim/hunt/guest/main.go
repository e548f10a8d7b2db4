// Command guest plays the plan of a seed: guest SEED [WITHOUT]. It prints the result as a JSON object. weir-hunt runs
// it, built for WebAssembly, where a seed has a single execution.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/weirhq/weir/dataplane/sim/hunt"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("%d arguments (1 or 2: SEED [WITHOUT])", len(args))
	}
	seed, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	plan := hunt.Draw(seed)
	if len(args) == 2 {
		without, err := hunt.ParseSet(args[1])
		if err != nil {
			return err
		}
		plan = plan.Without(without)
	}
	result, err := hunt.Play(plan)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
