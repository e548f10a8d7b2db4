package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/dataplane/sim"
	"github.com/weirhq/weir/shared/manual"
)

// weir-sim accepts every command of its own that a page shows, by its name or through go run, and the scenario exists.
func TestCommandsOfThePagesAreTaken(t *testing.T) {
	examples := manual.Of(t, "weir-sim")
	for _, example := range manual.Of(t, "go") {
		if i := slices.Index(example.Words, "./dataplane/cmd/weir-sim"); i >= 0 {
			example.Words = example.Words[i:]
			examples = append(examples, example)
		}
	}
	if len(examples) < 5 {
		t.Errorf("only %d examples", len(examples))
	}
	for _, example := range examples {
		var c cli
		parser, err := kong.New(&c, kong.Name("weir-sim"), kong.Exit(func(int) {}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = parser.Parse(example.Args())
		if c.Run.Scenario != "" {
			_, unknown := sim.Lookup(c.Run.Scenario)
			err = errors.Join(err, unknown)
		}
		if err != nil {
			t.Errorf("%s: %v", example, err)
		}
	}
}
